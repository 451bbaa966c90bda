"""What results say about a difference: paired by seed and by task, with its interval."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from varscale.evaluation.metrics import interval, t_interval
from varscale.paper.grid import entries
from varscale.paper.results import FLOAT32, Arrays, Results, Row, choose

Answer = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    what: str
    mean: float
    half: float  # Student's t over training seeds; of a single seed over test tasks
    runs: int
    unit: str = "points"

    def minus(self, other: "Estimate", what: str) -> "Estimate":
        """One estimate minus another, taken as independent."""
        half = float(np.hypot(self.half, other.half))
        return Estimate(what, self.mean - other.mean, half, min(self.runs, other.runs), self.unit)

    def __str__(self) -> str:
        digits = 0 if self.unit == "steps" else 2
        value = f"{self.mean:+.{digits}f} ± {self.half:.{digits}f} {self.unit}".rstrip()
        return f"{self.what} {value} ({self.runs} seed{'s' * (self.runs > 1)})"


@dataclass(frozen=True)
class Fact:
    """Something found, in words."""

    text: str
    runs: int = 0  # that it comes from; 0 where none is needed

    def __str__(self) -> str:
        return f"{self.text} ({self.runs} run{'s' * (self.runs > 1)})" if self.runs else self.text


class Evidence:
    """The rows of one size and dataset, or any dataset, in float32."""

    def __init__(self, results: Results, size: str, dataset: str | None = None) -> None:
        self.results = results
        self.absent: dict[str, None] = {}  # what was asked for and is not there, in order
        self.rows: dict[str, dict[int, Row]] = {}
        for row in results.rows(size):
            if dataset in (None, row.dataset) and row.precision == FLOAT32:
                self.rows.setdefault(row.cell, {})[row.seed] = row

    def runs(self, cell: str) -> list[Row]:
        """The runs of a cell, by seed."""
        self._ask(cell)
        return [row for _, row in sorted(self.rows.get(cell, {}).items())]

    def arrays(self, cell: str) -> list[Arrays]:
        """Their arrays."""
        return [self.results.arrays(row) for row in self.runs(cell)]

    def _ask(self, *cells: str) -> None:
        self.absent |= {cell: None for cell in cells if not self.rows.get(cell)}

    def choose(self, name: str, candidates: list[str]) -> None:
        """Enter the runs of the candidate that is best in validation; all must be there."""
        self.rows[name] = choose([self.rows.get(candidate, {}) for candidate in candidates])

    def pairs(self, cell: str, other: str) -> list[tuple[Row, Row]]:
        """The runs of two cells with the same seed."""
        self._ask(cell, other)
        ours, theirs = self.rows.get(cell, {}), self.rows.get(other, {})
        return [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]

    def gain(self, cell: str, over: str) -> Estimate | None:
        """Accuracy of one cell over another in points; `None` where they share no seed."""
        pairs = self.pairs(cell, over)
        if not pairs:
            return None
        for a, b in pairs:
            tests = {(r.n_way, r.n_shot, r.n_query, r.episodes, r.dataset_hash) for r in (a, b)}
            if len(tests) > 1:
                raise ValueError(f"{a.cell} and {b.cell} were not tested on the same tasks.")
        what = f"{cell} - {over}"
        if len(pairs) > 1:
            mean, half = t_interval([100 * (a.accuracy - b.accuracy) for a, b in pairs])
            return Estimate(what, mean, half, len(pairs))
        ((a, b),) = pairs
        hits = [self.results.arrays(row)["hits"].astype(np.float64) for row in (a, b)]
        mean, half = interval((100 * (hits[0] - hits[1]) / (a.n_way * a.n_query)).tolist())
        return Estimate(what, mean, half, 1)


@dataclass(frozen=True)
class Everything:
    """All results that claims look at."""

    small: Evidence  # miniImageNet at the small size
    frozen: dict[str, Evidence]  # scalers alone, on frozen embeddings, by dataset
    bench: dict[str, float]  # what `varscale bench --json` printed

    @classmethod
    def read(cls, folder: Path) -> "Everything":
        """From the folder of results.

        The fixed scale that is best in validation is called `grid_cosine_5w1s`, or 5s.
        """
        results = Results(folder)
        small = Evidence(results, "small", "miniimagenet32")
        for entry in entries("baselines", row="fixed scale, chosen in validation"):
            small.choose(f"grid_cosine_5w{entry.column[0]}s", list(entry.cells))
        datasets = sorted({row.dataset for row in results.rows("frozen")})
        frozen = {name: Evidence(results, "frozen", name) for name in datasets}
        return cls(small, frozen, _measured(folder / "bench.json"))


def _measured(file: Path) -> dict[str, float]:
    if not file.is_file():
        return {}
    try:
        return {name: float(value) for name, value in json.loads(file.read_text()).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not what varscale bench --json printed: {error}.") from error


Judgement = tuple[Answer, list[Estimate | Fact | None]]


def above(bound: float, *estimates: Estimate | None) -> Answer:
    """Whether all exceed a bound; one that does not makes it fail, a single seed says nothing."""
    found = [e for e in estimates if e is not None and e.runs > 1]
    if any(e.mean + e.half < bound for e in found):
        return "fails"
    if len(found) == len(estimates) and all(e.mean - e.half > bound for e in found):
        return "holds"
    return "undecided"


def below(bound: float, *estimates: Estimate | None) -> Answer:
    """Whether all are smaller than a bound."""
    return above(-bound, *(e and replace(e, mean=-e.mean) for e in estimates))


def within(margin: float, *estimates: Estimate | None) -> Answer:
    """Whether all are 0, give or take a margin."""
    return all_hold(above(-margin, *estimates), below(margin, *estimates))


def all_hold(*answers: Answer) -> Answer:
    """Whether all hold."""
    if "fails" in answers:
        return "fails"
    return "undecided" if "undecided" in answers else "holds"


def component_shares(scales: np.ndarray) -> np.ndarray:
    """Share of each principal component in how tasks (rows) differ in their log scales."""
    logs = np.log(scales.clip(1e-6))
    power = np.linalg.svd(logs - logs.mean(0), compute_uv=False) ** 2
    return np.asarray(power / power.sum())
