"""The grid: every cell of the paper's tables and figures, its config, and the published figure.

It is one table, `grid.csv`, a line for each cell at each place. The first line of a cell gives its
config as words such as `conv4 metric=cosine scaler_options.init=10.0`; a word without `=` names the
cell that it builds on. Lines without a table hold cells that the paper does not report.
"""

import copy
import csv
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from varscale.core.registry import unknown
from varscale.runs import TrainConfig

TITLES = {
    "table1": "Table 1: other methods, and ResNet-12",
    "table2": "Table 2: what each scaler gains",
    "table3": "Table 3: 5-way and 20-way training, fixed and learned sigma",
    "table4": "Table 4: auxiliary loss and prior of D-AVS",
    "table5": "Table 5: the scale trained together with the weights",
    "table6": "Table 6: prior and start of SVS",
    "fig2": "Figure 2: learning curves",
    "fig3": "Figure 3: the scale over training",
    "fig4": "Figure 4: entries of D-SVS's scale",
    "appC": "Appendix C: scales that D-AVS generates",
    "baselines": "Baselines that the paper does not have",
    "omniglot": "Omniglot, which the paper does not have",
}
"""Everything that can be run again, by its name."""

FILE = Path(__file__).parent / "grid.csv"


@dataclass(frozen=True)
class Entry:
    """One place in a table or figure."""

    id: str  # of the table or figure; `baselines` are ours
    row: str
    column: str
    cells: tuple[str, ...]  # several: the best in validation; none: the paper took it over
    accuracy: float | None  # as published, in per cent
    interval: float | None  # its half-width

    @property
    def published(self) -> str:
        """The published accuracy, to read."""
        return format_figure(self.accuracy, self.interval)


def format_figure(mean: float | None, half: float | None) -> str:
    """Write a figure and its half-width, to read."""
    if mean is None:
        return ""
    return f"{mean:.2f}" if half is None else f"{mean:.2f} ± {half:.2f}"


@cache
def read_grid(file: Path = FILE) -> tuple[list[Entry], dict[str, dict[str, Any]]]:
    """Read the places of a grid, and the values of the config of each cell."""
    found: list[Entry] = []
    values: dict[str, dict[str, Any]] = {}
    with file.open(newline="") as lines:
        for line in csv.DictReader(lines):
            name, overrides = line["cell"], line["overrides"]
            if bool(overrides) != (bool(name) and name not in values):
                raise ValueError(
                    f"Expected the overrides of a cell once, in its first line, got {overrides!r} "
                    f"for {name!r} in {file.name}."
                )
            if overrides:
                values[name] = _parse(overrides, values)
            place = line["table"], line["row"], line["column"]
            cells = (name,) if name else ()
            if found and place == (found[-1].id, found[-1].row, found[-1].column):
                found[-1] = replace(found[-1], cells=found[-1].cells + cells)
            elif line["table"]:
                figures = [float(line[k]) if line[k] else None for k in ("accuracy", "interval")]
                found.append(Entry(*place, cells, *figures))
    return found, values


def _parse(overrides: str, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The values of a cell; options that it gives replace all of the same kind of its base."""
    import yaml

    base: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for word in overrides.split():
        key, given, text = word.partition("=")
        kind, nested, option = key.partition(".")
        if not given:
            base = known[key]
        elif nested:
            own.setdefault(kind, {})[option] = yaml.safe_load(text)
        else:
            own[key] = yaml.safe_load(text)
    return {**base, **own}


def entries(
    id: str | None = None, *, row: str | None = None, column: str | None = None
) -> list[Entry]:
    """Everything reported; or what belongs to a table or figure, or to a row or column of it."""
    found, _ = read_grid()
    if id is None:
        return list(found)
    if id not in TITLES:
        raise unknown("table or figure", id, TITLES)
    found = [entry for entry in found if entry.id == id]
    for name, wanted in {"row": row, "column": column}.items():
        known = list(dict.fromkeys(getattr(entry, name) for entry in found))
        if wanted is not None and wanted not in known:
            raise unknown(f"{name} of {id}", wanted, known)
        found = [entry for entry in found if wanted in (None, getattr(entry, name))]
    return found


def cells(entries: list[Entry]) -> list[str]:
    """The cells of some entries, each once."""
    return list(dict.fromkeys(name for entry in entries for name in entry.cells))


def cell(method: str, metric: str, *, shot: int, way: int = 5) -> str:
    """The name of a cell, such as `svs_cosine_5w1s`; raises ValueError if the grid lacks it."""
    name = f"{method}_{metric}_{way}w{shot}s"
    values_of(name)
    return name


def cell_at(id: str, row: str, column: str) -> str:
    """The name of the cell at a place; raises ValueError unless there is exactly one."""
    found = cells(entries(id, row=row, column=column))
    if len(found) != 1:
        raise ValueError(f"Expected one cell at {row!r}, {column!r} of {id}, got {found}.")
    return found[0]


def values_of(cell: str) -> dict[str, Any]:
    """The keys of a cell's config, as a YAML file would have them."""
    _, values = read_grid()
    if cell not in values:
        raise ValueError(
            f"{unknown('cell', cell, values)} varscale reproduce table2 --plan lists those of a "
            "table."
        )
    return copy.deepcopy(values[cell])


def config_of(cell: str) -> TrainConfig:
    """The config of a cell, at the paper's size."""
    return TrainConfig(**values_of(cell))


def config_text(cell: str) -> str:
    """The config of a cell as a YAML file that `varscale train --config` takes."""
    import yaml

    values = yaml.safe_dump(values_of(cell), sort_keys=False)
    places = [
        f"# {TITLES[entry.id].partition(':')[0]}, {entry.row}, {entry.column}: "
        + (f"published {figure} %." if (figure := entry.published) else "no figure published.")
        for entry in entries()
        if cell in entry.cells
    ]
    command = f"#   varscale train --config {cell}.yaml --out runs/{cell}"
    made = f"#   varscale reproduce --print-config {cell} > {cell}.yaml"
    return "\n".join([f"# The cell {cell} at the paper's size.", *places, made, command, values])
