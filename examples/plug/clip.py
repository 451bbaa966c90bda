"""CLIP's loss on two towers, written in plain torch: `diff clip.py clip_scaled.py`."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def main() -> None:
    """Train and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = nn.ModuleDict({"image": nn.Linear(32, 16), "text": nn.Linear(24, 16)})
    mixing = torch.randn(2, 8, 32, generator=generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(steps):
        meaning = torch.randn(64, 8, generator=generator)  # what both towers see
        image, text = meaning @ mixing[0], meaning @ mixing[1, :, :24]
        image = network["image"](image + torch.randn(64, 32, generator=generator))
        text = network["text"](text + torch.randn(64, 24, generator=generator))
        cosines = F.normalize(image) @ F.normalize(text).T
        both, pairs = torch.cat([cosines, cosines.T]), torch.arange(64).repeat(2)
        loss = F.cross_entropy(both / 0.07, pairs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}\n{network}")


if __name__ == "__main__":
    main()
