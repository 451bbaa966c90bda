"""Measure speed: in alternating turns, as ratios, by medians."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class Ratio:
    """A measured ratio and its bound."""

    key: str
    value: float
    target: float  # the bound
    at_least: bool  # whether it is a lower bound
    meaning: str  # what is divided by what

    @property
    def met(self) -> bool:
        """Whether the value is within the bound."""
        return self.value >= self.target if self.at_least else self.value <= self.target


def turns(
    *steps: Callable[[], object], repeats: int, calls: int = 1, warm_up: int = 1
) -> list[list[float]]:
    """Seconds of each step in each turn; steps alternate, so that a slow moment hits them all.

    Args:
        *steps: What to measure. A step that is measured elsewhere returns its own seconds.
        repeats: Turns of each step, after those to warm up.
        calls: Calls in a turn. A step of microseconds needs several: the first pays for the
            caches and the memory that the other step left behind.
        warm_up: First turns, which do not count.
    """
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(warm_up + repeats):
        for step, measured in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                own = step()
            taken = (time.perf_counter() - start) / calls
            measured.append(own if isinstance(own, float) else taken)
    return [measured[warm_up:] for measured in seconds]


def interleave(*steps: Callable[[], object], repeats: int, calls: int = 1) -> list[float]:
    """Median seconds of each step, measured in `turns`."""
    return [median(measured) for measured in turns(*steps, repeats=repeats, calls=calls)]


def ratio_of(above: Callable[[], object], below: Callable[[], object], *, repeats: int) -> float:
    """Median ratio of the times of two steps, taken turn by turn so that a slow moment cancels."""
    first, second = turns(above, below, repeats=repeats, warm_up=2)
    return median(a / b for a, b in zip(first, second, strict=True))


def peak_memory(step: Callable[[], object]) -> int:
    """Peak memory of a step beyond what is held before it, in bytes, from torch's profiler."""
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
