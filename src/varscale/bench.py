"""Speed as ratios, each measured interleaved in one run: absolute times say more of the machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from varscale.data import EpisodeSampler
from varscale.functional import euclidean_logits


@dataclass(frozen=True)
class Ratio:
    """One measured ratio and what it should be.

    Attributes:
        key: Its name.
        value: What was measured.
        target: The bound.
        at_least: Whether the bound is one from below.
        meaning: What is divided by what.
    """

    key: str
    value: float
    target: float
    at_least: bool
    meaning: str

    @property
    def met(self) -> bool:
        """Whether the measurement keeps the bound."""
        return self.value >= self.target if self.at_least else self.value <= self.target


def run(repeats: int = 15) -> list[Ratio]:
    """Measure every ratio.

    Args:
        repeats: Interleaved repetitions; medians are compared.
    """
    if repeats < 1:
        raise ValueError(f"Expected repeats >= 1, got {repeats}.")
    return [*head_dsvs(repeats), episodes_per_second(repeats)]


def head_dsvs(repeats: int) -> list[Ratio]:
    """D-SVS head, 75 queries, 5 ways, M = 1600, forward and backward: broadcasting against ours."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(75, 1600, generator=generator).requires_grad_()
    reference = torch.randn(5, 1600, generator=generator).requires_grad_()
    alpha = torch.rand(1600, generator=generator).requires_grad_()
    upstream = torch.randn(75, 5, generator=generator)  # the loss's gradient, the same for both
    leaves = (query, reference, alpha)

    def ours() -> None:
        logits = euclidean_logits(query, reference, alpha)
        torch.autograd.grad(logits, leaves, upstream)

    def broadcast() -> None:
        difference = query.unsqueeze(1) - reference  # (query, way, dim)
        logits = -0.5 * (alpha * difference.square()).sum(-1)
        torch.autograd.grad(logits, leaves, upstream)

    slow, fast = interleaved(broadcast, ours, repeats=repeats, calls=200)
    return [
        Ratio(
            "head_speedup_dsvs",
            slow / fast,
            5.0,
            True,
            "time of the broadcast D-SVS head over ours, forward + backward, M = 1600",
        ),
        Ratio(
            "head_memory_dsvs",
            peak_memory(ours) / peak_memory(broadcast),
            0.1,
            False,
            "peak memory of our D-SVS head over the broadcast one",
        ),
    ]


def episodes_per_second(repeats: int) -> Ratio:
    """Rate of index sampling: five-way 5-shot 15-query episodes of 64 classes x 600 items."""
    sampler = EpisodeSampler(np.repeat(np.arange(64), 600), n_way=5, n_shot=5, n_query=15)
    count = 5000
    (seconds,) = interleaved(lambda: sampler.batch(0, count), repeats=min(repeats, 10))
    meaning = "episodes drawn a second (a rate, for orientation; not a ratio)"
    return Ratio("episodes_per_s", count / seconds, 100_000.0, True, meaning)


def interleaved(*steps: Callable[[], object], repeats: int, calls: int = 1) -> list[float]:
    """Median seconds of each step; they take turns, so that a slow moment hits them all.

    Args:
        *steps: What to measure.
        repeats: Turns of each, after one to warm up.
        calls: Calls in a turn. A step of microseconds needs several: the first pays for the
            caches and the memory that the other step left behind.
    """
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(1 + repeats):
        for step, measured in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                step()
            measured.append((time.perf_counter() - start) / calls)
    return [median(measured[1:]) for measured in seconds]


def peak_memory(step: Callable[[], None]) -> int:
    """Most bytes that a step holds at once beyond what it found, by the allocator's own records."""
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
