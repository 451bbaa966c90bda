"""CosFace on ten Gaussian classes: `diff cosface.py cosface_scaled.py`."""

import argparse

import torch
from pytorch_metric_learning.losses import CosFaceLoss
from torch import nn

from varscale.plug import scaled


def main() -> None:
    """Train and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(10, 32, generator=generator)
    network = nn.Linear(32, 16)
    loss_function = scaled(CosFaceLoss(num_classes=10, embedding_size=16, scale=64))
    parameters = [*network.parameters(), *loss_function.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for _ in range(steps):
        labels = torch.arange(60) % 10
        x = centres[labels] + torch.randn(60, 32, generator=generator)
        loss = loss_function(network(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}, scale {loss_function.scale}")


if __name__ == "__main__":
    main()
