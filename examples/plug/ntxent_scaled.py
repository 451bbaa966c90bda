"""SimCLR's loss on two noisy views of Gaussian items: `diff ntxent.py ntxent_scaled.py`."""

import argparse

import torch
from pytorch_metric_learning.losses import NTXentLoss
from torch import nn

from varscale.plug import scaled


def main() -> None:
    """Train and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = nn.Linear(32, 16)
    loss_function = scaled(NTXentLoss(temperature=0.07))
    parameters = [*network.parameters(), *loss_function.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for _ in range(steps):
        x = torch.randn(64, 32, generator=generator)
        views = x + torch.randn(2, 64, 32, generator=generator)
        loss = loss_function(network(views.flatten(0, 1)), torch.arange(64).repeat(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}, scale {loss_function.scale}")


if __name__ == "__main__":
    main()
