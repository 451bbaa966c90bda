"""Train in one process, then in two with half of the rows each, and write both as JSON.

python two_processes.py FOLDER KIND ...
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

from varscale.plug import LogitScale


class Network(nn.Module):
    """Cosines of a linear embedding and class vectors, times the scale if that is inside."""

    def __init__(self, *, inside):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embed = nn.Linear(8, 4, bias=False).double()
        self.classes = nn.Linear(4, 5, bias=False).double()
        for p in self.parameters():
            p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        self.scale, self.inside = LogitScale().double(), inside

    def forward(self, x):
        cosines = self.classes(F.normalize(self.embed(x))) / 4
        return self.scale(cosines) if self.inside else cosines


def wrap(network, kind):
    if kind.startswith("ddp"):
        return nn.parallel.DistributedDataParallel(network)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    if kind == "fsdp-apart":
        fully_shard(network.scale, mesh=mesh, reshard_after_forward=True)
    resharded = True if kind == "fsdp-sharded" else None
    return fully_shard(network, mesh=mesh, reshard_after_forward=resharded)


def train(kind, rank=0, world=1):
    network = Network(inside=kind in ("ddp", "fsdp", "fsdp-apart"))
    scale, model = network.scale, network if world == 1 else wrap(network, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    generator = torch.Generator().manual_seed(1)
    steps, sharded = [], False
    for _ in range(4):
        x = torch.randn(12, 8, generator=generator, dtype=torch.float64)[rank::world]
        y = torch.randint(5, (12,), generator=generator)[rank::world]
        out = model(x)
        sharded |= hasattr(scale.shift, "full_tensor")
        logits = out if network.inside else scale(out)
        loss = F.cross_entropy(logits, y) + scale.kl()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        alpha = scale.alpha.item()
        steps.append({"alpha": alpha, "seen": scale.seen.item(), "origin": scale.origin.item()})
    weight = network.embed.weight
    whole = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
    return {
        "steps": steps,
        "weight": whole.detach().flatten().tolist(),
        "sharded": sharded,
        "repr": repr(scale) if rank == 0 else "",  # it waits for no other process
    }


def work(rank, folder, kinds):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for kind in kinds:
        (folder / f"{kind}.{rank}").write_text(json.dumps(train(kind, rank, 2)))
    dist.barrier()
    os._exit(0)  # all is written; gloo's threads can abort an ordinary exit


if __name__ == "__main__":
    folder, kinds = Path(sys.argv[1]), sys.argv[2:]
    for kind in kinds:
        (folder / f"{kind}.one").write_text(json.dumps(train(kind)))
    mp.spawn(work, (folder, kinds), nprocs=2)
