"""Reported and ours, side by side."""

from dataclasses import dataclass

from varscale.evaluation.metrics import t_interval
from varscale.paper.grid import Entry
from varscale.paper.results import Row, choose
from varscale.paper.sizes import SIZES


@dataclass(frozen=True)
class Line:
    """One place of a table: what was published, and what came out here."""

    entry: Entry
    rows: list[Row]  # our runs

    @property
    def ours(self) -> float | None:
        """Mean accuracy over runs, in per cent."""
        return _mean_and_half([100 * row.accuracy for row in self.rows])[0]

    @property
    def half(self) -> float | None:
        """Half-width over runs by Student's t; `None` for fewer than two."""
        return _mean_and_half([100 * row.accuracy for row in self.rows])[1]

    @property
    def difference(self) -> float | None:
        """Ours minus reported, in points; none on other data, or on frozen embeddings."""
        if self.ours is None or self.entry.accuracy is None:
            return None
        row = self.rows[0]
        own = SIZES[row.size].datasets.get("miniimagenet", "miniimagenet")
        if row.size == "frozen" or row.dataset != own:
            return None
        return self.ours - self.entry.accuracy


def _mean_and_half(values: list[float]) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return (values[0] if values else None), None
    return t_interval(values)


def table(entries: list[Entry], rows: list[Row]) -> list[Line]:
    """The lines of a table, each with its runs."""
    by_cell: dict[str, dict[int, Row]] = {}
    for row in rows:
        by_cell.setdefault(row.cell, {})[row.seed] = row
    return [
        Line(entry, list(choose([by_cell.get(name, {}) for name in entry.cells]).values()))
        for entry in entries
    ]


@dataclass(frozen=True)
class Gain:
    """What a line gains over the first of its column, in points."""

    reported: float | None  # by the published figures
    ours: float | None  # by our runs, paired by seed
    half: float | None  # its half-width by Student's t


def gains(lines: list[Line]) -> list[Gain]:
    """What each line gains over the first of its column; nothing on frozen embeddings."""
    first: dict[str, Line] = {}
    found = []
    for line in lines:
        base = first.setdefault(line.entry.column, line)
        if base is line or any(row.size == "frozen" for row in line.rows):
            found.append(Gain(None, None, None))
            continue
        reported = None
        if line.entry.accuracy is not None and base.entry.accuracy is not None:
            reported = line.entry.accuracy - base.entry.accuracy
        before = {row.seed: row.accuracy for row in base.rows}
        pairs = [100 * (r.accuracy - before[r.seed]) for r in line.rows if r.seed in before]
        found.append(Gain(reported, *_mean_and_half(pairs)))
    return found
