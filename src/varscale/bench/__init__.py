"""Benchmarks: speed as ratios of alternating measurements, because times depend on the machine.

Measurements and the plain code that they compare with belong here; only the CLI uses them.
"""

import csv
import tempfile
from collections.abc import Callable
from pathlib import Path

from varscale.bench import evaluations, processes, samplers, steps
from varscale.bench.plain import Plain
from varscale.bench.timing import Ratio
from varscale.core.allocator import keep_memory
from varscale.core.registry import unknown

__all__ = ["PARTS", "Ratio", "run"]

PARTS: dict[str, Callable[[Path, Plain, int], dict[str, float]]] = {
    "train_over_floor": lambda folder, plain, n: steps.train_over_floor(folder, n),
    "fast_backbone": lambda folder, plain, n: steps.fast_backbone(plain, n),
    "scaler_overhead": lambda folder, plain, n: steps.scaler_overhead(folder, n),
    "tadam": lambda folder, plain, n: steps.tadam_over_passes(folder, n),
    "evaluation": evaluations.evaluation,
    "embedding": lambda folder, plain, n: evaluations.embedding_bf16(folder, n),
    "heads": lambda folder, plain, n: evaluations.head_dsvs(n) | evaluations.head_over_plain(n),
    "samplers": lambda folder, plain, n: samplers.sampler_over_numpy(n),
    "rates": lambda folder, plain, n: (
        steps.tasks_per_second(folder, n) | samplers.episodes_per_second(n)
    ),
    "processes": lambda folder, plain, n: processes.ddp_2_over_1(folder, n),
}
"""What can be measured, by name; `bounds.csv` says what each key means and should be."""


def run(repeats: int = 15, parts: list[str] | None = None) -> list[Ratio]:
    """Measure all `PARTS`, or some; slow ones in that many interleaved turns, fast ones in more."""
    if repeats < 1:
        raise ValueError(f"Expected repeats >= 1, got {repeats}.")
    for part in parts or ():
        if part not in PARTS:
            raise unknown("part", part, PARTS)
    keep_memory()
    measured: dict[str, float] = {}
    for name in parts or PARTS:
        with tempfile.TemporaryDirectory() as folder, Plain() as plain:
            measured |= PARTS[name](Path(folder), plain, repeats)
    text = Path(__file__).with_name("bounds.csv").read_text()
    bounds = {line["key"]: line for line in csv.DictReader(text.splitlines())}
    return [
        Ratio(key, value, float(line["target"]), line["bound"] == "at least", line["meaning"])
        for key, value in measured.items()
        for line in [bounds[key]]
    ]
