"""The prototypical network of torch_only.py with a learned scale: three more lines. `diff` them."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

from varscale import functional, scalers
from varscale.learn import follow

WAY, SHOT, QUERY, PIXELS = 5, 1, 15, 256


def draw_task(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Supports (way, shot, pixel), queries (way * query, pixel) and their labels."""
    means = torch.randn(WAY, 1, PIXELS, generator=generator)
    items = means + 2 * torch.randn(WAY, SHOT + QUERY, PIXELS, generator=generator)
    support, query = items.split([SHOT, QUERY], dim=1)
    return support, query.flatten(0, 1), torch.arange(WAY).repeat_interleave(QUERY)


def main() -> None:
    """Train and print the loss of the last hundred tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, 64))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    scaler = scalers.SVS(init=1.0, lr=0.1, kl_weight=0.01)  # q(alpha): a learned scale
    follow(scaler, optimizer, queries_per_task=WAY * QUERY)  # it steps when Adam steps
    losses = []
    for _ in range(steps):
        support, query, labels = draw_task(generator)
        prototypes = F.normalize(network(support).mean(1), dim=-1)
        embedded = F.normalize(network(query), dim=-1)
        q = scaler(prototypes.mean(0))
        logits = functional.dot_logits(embedded, prototypes, q.rsample())
        loss = F.cross_entropy(logits, labels) + scaler.penalty(q) / len(labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(F.cross_entropy(logits, labels).item())
    recent = losses[-100:]
    print(f"cross-entropy of the last {len(recent)} tasks: {sum(recent) / len(recent):.3f}")


if __name__ == "__main__":
    main()
