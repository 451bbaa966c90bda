"""A prototypical network on Gaussian tasks: `diff prototypical.py prototypical_scaled.py`."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

WAY, SHOT, QUERY = 5, 1, 15


class PrototypicalNetwork(nn.Module):
    """Cosines of queries (query, pixel) and class means of supports (way, shot, pixel)."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        """Cosines (query, way)."""
        prototypes = F.normalize(self.backbone(support).mean(1), dim=-1)
        return F.normalize(self.backbone(query), dim=-1) @ prototypes.T


def main() -> None:
    """Train and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = PrototypicalNetwork(nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64)))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(steps):
        means = torch.randn(WAY, 1, 256, generator=generator)
        items = means + 2 * torch.randn(WAY, SHOT + QUERY, 256, generator=generator)
        support, query = items.split([SHOT, QUERY], dim=1)
        cosines, labels = network(support, query.flatten(0, 1)), torch.arange(WAY * QUERY) // QUERY
        loss = F.cross_entropy(cosines / 0.1, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}\n{network}")


if __name__ == "__main__":
    main()
