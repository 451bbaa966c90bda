"""The baseline, in a separate process: a plain Conv-4 with the default allocator.

The process reads the name of a job from each line of its input, does it once, and answers with the
seconds it took.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn


def plain_conv4(in_channels: int) -> nn.Sequential:
    """Conv-4 as in the textbook: convolution, batch norm, ReLU, pool; NCHW."""
    layers: list[nn.Module] = []
    for channels in (in_channels, 64, 64, 64):
        layers += [nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten())


def training_step(network: nn.Module, images: Tensor) -> Callable[[], None]:
    """Forward, backward and Adam on one resident batch."""
    optimizer = torch.optim.Adam(network.parameters())

    def step() -> None:
        optimizer.zero_grad()
        network(images).square().mean().backward()
        optimizer.step()

    return step


def usual_evaluation(episodes: int) -> Callable[[], None]:
    """Five-way 1-shot tasks of 423 classes x 20 grey 28x28 images, each embedded separately."""
    network = plain_conv4(1).eval()
    items = torch.randint(256, (423, 20, 1, 28, 28), dtype=torch.uint8)

    def step() -> None:
        hits = []
        for _ in range(episodes):
            classes = random.sample(range(423), 5)
            picks = [random.sample(range(20), 16) for _ in classes]
            images = [
                [items[c, i].float() / 255 for i in p] for c, p in zip(classes, picks, strict=True)
            ]
            support = torch.stack([one[0] for one in images])
            query = torch.stack([image for one in images for image in one[1:]])
            labels = torch.arange(5).repeat_interleave(15)
            with torch.no_grad():
                distances = torch.cdist(network(query), network(support))
            hits.append((distances.argmin(1) == labels).float().mean().item())

    return step


@cache
def _job(name: str) -> Callable[[], None]:
    kind, number = name.split()
    if kind == "eval":
        return usual_evaluation(int(number))
    return training_step(plain_conv4(3), torch.rand(100, 3, int(number), int(number)))


def main() -> None:
    """Serve jobs until the input ends."""
    for line in sys.stdin:
        job = _job(line.strip())
        began = time.perf_counter()
        job()
        sys.stdout.write(f"{time.perf_counter() - began}\n")
        sys.stdout.flush()


class Plain:
    """Context manager of the baseline process, which starts with its first job."""

    process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Plain":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.communicate()

    def __call__(self, job: str) -> float:
        """Run a job, `train SIZE` or `eval EPISODES`, and return its seconds."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from varscale.bench.plain import main; main()"],
                env={k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{job}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())
