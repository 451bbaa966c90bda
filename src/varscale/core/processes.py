"""Exchange tensors and batch statistics between processes."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """The processes that share a piece of work; by default there is only this one."""

    rank: int = 0
    count: int = 1
    device: torch.device | None = None  # where they exchange tensors: NCCL supports only GPUs

    def gather(self, x: Tensor) -> Tensor:
        """Stack the tensors of all processes, which must have the same shape."""
        if self.count == 1:
            return x.unsqueeze(0)
        return gather(x.to(self.device), self.count).to(x.device)

    def share(self, total: int) -> range:
        """This process's part of 0..total-1; all parts but the last ones are equally long."""
        each = -(-total // self.count)
        return range(min(self.rank * each, total), min((self.rank + 1) * each, total))

    def join(self, part: Tensor, total: int) -> Tensor:
        """Concatenate the parts of all processes along the first axis: the inverse of `share`."""
        if self.count == 1:
            return part
        each = -(-total // self.count)
        padded = F.pad(part, (0, 0) * (part.ndim - 1) + (0, each - len(part)))
        return self.gather(padded).flatten(0, 1)[:total]


ALONE = Processes()
MOST_PROCESSES = 8
"""Processes that may share the cores of a machine, even if it has fewer."""


def check_accelerator(name: str, devices: int = 1) -> None:
    """Raise ValueError if this machine has no such device, or not so many."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(name, True):
        raise ValueError(f"There is no {name} device here. Use --accelerator cpu.")
    gpus = torch.cuda.device_count() if name in ("auto", "cuda") else 0
    most = gpus or max(MOST_PROCESSES, os.cpu_count() or 1)
    if devices > most:
        raise ValueError(f"Expected at most {most} devices on this machine, got {devices}.")


def gather(x: Tensor, count: int) -> Tensor:
    """Stack the tensors of all processes of the group."""
    out = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(count)]
    dist.all_gather(out, x.contiguous())
    return torch.stack(out)
