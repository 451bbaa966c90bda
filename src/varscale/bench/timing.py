"""How speed is measured: in turns, as ratios, by medians."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from torch.profiler import ProfilerActivity, profile


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


def turns(
    *steps: Callable[[], object], repeats: int, calls: int = 1, warm_up: int = 1
) -> list[list[float]]:
    """Seconds of each step in each turn; they take turns, so that a slow moment hits them all.

    Args:
        *steps: What to measure. A step that is measured elsewhere returns its own seconds.
        repeats: Turns of each, after those to warm up.
        calls: Calls in a turn. A step of microseconds needs several: the first pays for the
            caches and the memory that the other step left behind.
        warm_up: Turns that do not count.
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


def interleave(
    *steps: Callable[[], object], repeats: int, calls: int = 1, warm_up: int = 1
) -> list[float]:
    """Median seconds of each step, measured in `turns`."""
    return [median(m) for m in turns(*steps, repeats=repeats, calls=calls, warm_up=warm_up)]


def ratio_of(
    above: Callable[[], object],
    below: Callable[[], object],
    *,
    repeats: int,
    warm_up: int = 2,
) -> float:
    """Median over turns of one step's time over another's: both have the same weather."""
    first, second = turns(above, below, repeats=repeats, warm_up=warm_up)
    return median(a / b for a, b in zip(first, second, strict=True))


def peak_memory(step: Callable[[], object]) -> int:
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
