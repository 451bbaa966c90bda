"""What the paper reports: every cell of its tables and figures, and the config that makes it."""

import csv
from dataclasses import dataclass
from pathlib import Path

from varscale.core.registry import unknown

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

FILE = Path(__file__).parent / "reported.csv"


@dataclass(frozen=True)
class Entry:
    """One place in a table or figure.

    Attributes:
        id: The table or figure; `baselines` are ours.
        row: Its row.
        column: Its column.
        configs: Config of the cell, below `configs/`, without `.yaml`; several where the best of
            them in validation is meant; none for a figure that the paper takes from elsewhere.
        accuracy: Published accuracy in per cent; `None` where there is none.
        interval: Published half-width; `None` where there is none.
    """

    id: str
    row: str
    column: str
    configs: tuple[str, ...]
    accuracy: float | None
    interval: float | None


def entries(
    id: str | None = None, *, row: str | None = None, column: str | None = None
) -> list[Entry]:
    """Everything reported; or what belongs to a table or figure, or to a row or column of it."""
    with FILE.open(newline="") as file:
        found = [
            Entry(
                line["id"],
                line["row"],
                line["column"],
                tuple(line["config"].split()),
                float(line["accuracy"]) if line["accuracy"] else None,
                float(line["interval"]) if line["interval"] else None,
            )
            for line in csv.DictReader(file)
        ]
    if id is None:
        return found
    if id not in TITLES:
        raise unknown("table or figure", id, TITLES)
    found = [entry for entry in found if entry.id == id]
    for name, wanted in {"row": row, "column": column}.items():
        known = list(dict.fromkeys(getattr(entry, name) for entry in found))
        if wanted is not None and wanted not in known:
            raise unknown(f"{name} of {id}", wanted, known)
        found = [entry for entry in found if wanted in (None, getattr(entry, name))]
    return found


def configs(entries: list[Entry]) -> list[str]:
    """The configs of some entries, each once."""
    return list(dict.fromkeys(config for entry in entries for config in entry.configs))
