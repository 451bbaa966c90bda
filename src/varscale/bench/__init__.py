"""Benchmarks: speed as ratios of alternating measurements, because times depend on the machine.

Measurements and the plain code that they compare with belong here; only the CLI uses them.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from varscale.bench.evaluations import embedding_bf16, episodes_per_second, evaluation
from varscale.bench.heads import head_dsvs, head_over_plain
from varscale.bench.plain import Plain
from varscale.bench.processes import ddp_2_over_1
from varscale.bench.samplers import sampler_over_numpy
from varscale.bench.steps import (
    fast_backbone,
    scaler_overhead,
    tadam_over_passes,
    tasks_per_second,
    train_over_floor,
)
from varscale.bench.timing import Ratio
from varscale.core.allocator import keep_memory
from varscale.core.registry import unknown

__all__ = ["PARTS", "Ratio", "run"]

Part = Callable[[Path, Plain, int], list[Ratio]]

PARTS: dict[str, Part] = {
    "train_over_floor": lambda folder, plain, n: train_over_floor(folder, n),
    "fast_backbone": lambda folder, plain, n: fast_backbone(plain, n),
    "scaler_overhead": lambda folder, plain, n: scaler_overhead(folder, n),
    "tadam": lambda folder, plain, n: [tadam_over_passes(folder, n)],
    "evaluation": evaluation,
    "embedding": lambda folder, plain, n: embedding_bf16(folder, n),
    "heads": lambda folder, plain, n: [*head_dsvs(n), head_over_plain(n)],
    "samplers": lambda folder, plain, n: sampler_over_numpy(n),
    "rates": lambda folder, plain, n: [tasks_per_second(folder, n), episodes_per_second(n)],
    "processes": lambda folder, plain, n: [ddp_2_over_1(folder, n)],
}
"""What can be measured, by name."""


def run(repeats: int = 15, parts: list[str] | None = None) -> list[Ratio]:
    """Measure ratios.

    Args:
        repeats: Interleaved turns of a slow measurement; fast ones get more.
        parts: Names in `PARTS`; all if not given.
    """
    if repeats < 1:
        raise ValueError(f"Expected repeats >= 1, got {repeats}.")
    for part in parts or ():
        if part not in PARTS:
            raise unknown("part", part, PARTS)
    keep_memory()
    ratios = []
    for name in parts or PARTS:
        with tempfile.TemporaryDirectory() as folder, Plain() as plain:
            ratios += PARTS[name](Path(folder), plain, repeats)
    return ratios
