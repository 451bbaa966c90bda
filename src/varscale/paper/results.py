"""Results: one CSV row per run, and beside it the arrays that figures and differences need."""

import csv
import io
import zipfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock

from varscale.core.files import write_whole

Arrays = dict[str, np.ndarray]

FLOAT32: Literal["32-true"] = "32-true"
"""The precision of a run unless it says another; see `config.TrainConfig`."""

BEFORE = {"precision": FLOAT32, "commit": ""}
"""Of rows that were written before they had these columns."""


@dataclass(frozen=True)
class Row:
    """One run and its test.

    Attributes:
        config: Name of the cell's config.
        scale: `small` or `paper`.
        seed: Seed of the training.
        config_hash: Of the config as it was run.
        dataset: Its name.
        dataset_hash: Of its content.
        item: Size of an item.
        steps: Training steps.
        best_step: Step of the model that was tested, chosen in validation.
        val_accuracy: Its validation accuracy; NaN where the last one was tested.
        n_way: Classes of a test task.
        n_shot: Supports per class.
        n_query: Queries per class.
        episodes: Test tasks.
        accuracy: Over the test tasks, as all figures here a fraction of 1.
        ci95: Half-width over tasks.
        nll: Negative log-likelihood of a query.
        ece: Calibration error.
        scale_mean: Mean of the scale that was tested; of D-AVS over the tasks of that step.
        scale_min: Its smallest entry.
        scale_max: Its largest.
        minutes: Of training and testing.
        threads: Threads it ran on.
        precision: Of its arithmetic, as `config.TrainConfig` names it.
        version: Of varscale.
        commit: Of varscale's source; empty where it is not known.
    """

    config: str
    scale: str
    seed: int
    config_hash: str
    dataset: str
    dataset_hash: str
    item: str
    steps: int
    best_step: int
    val_accuracy: float
    n_way: int
    n_shot: int
    n_query: int
    episodes: int
    accuracy: float
    ci95: float
    nll: float
    ece: float
    scale_mean: float
    scale_min: float
    scale_max: float
    minutes: float
    threads: int
    precision: str
    version: str
    commit: str

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What tells it from every other row."""
        return self.config, self.scale, self.dataset, self.precision, self.seed


class Results:
    """The rows in a folder, a CSV file for each scale.

    Args:
        folder: `results/` in the repository.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, scale: str) -> list[Row]:
        """What was run at a scale."""
        path = self.folder / f"{scale}.csv"
        if not path.is_file():
            return []
        kinds: dict[str, Any] = {f.name: f.type for f in fields(Row)}  # str, int or float
        with path.open(newline="") as file:
            try:
                rows = [
                    Row(**{name: kind({**BEFORE, **row}[name]) for name, kind in kinds.items()})
                    for row in csv.DictReader(file)
                ]
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path} has a row that cannot be read: {error!r}.") from error
        for row in rows:
            if not (0 <= row.accuracy <= 1 and row.nll >= 0):
                raise ValueError(f"{path} has a row without an accuracy or NLL: {row.key}.")
        return rows

    def add(self, row: Row, arrays: Arrays) -> None:
        """Store a row in its place, and its arrays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        self.arrays_file(row).parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.arrays_file(row), buffer.getvalue())
        with FileLock(self.folder / ".lock"):
            rows = {other.key: other for other in self.rows(row.scale)} | {row.key: row}
            text = io.StringIO()
            writer = csv.DictWriter(text, [f.name for f in fields(Row)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(rows[key]) for key in sorted(rows))
            write_whole(self.folder / f"{row.scale}.csv", text.getvalue().encode())

    def take(self, other: "Results") -> int:
        """Add the rows of another folder, with their arrays, that are not here; how many.

        A row that is here already stays, unless it was made before rows named their commit.
        """
        files = sorted(other.folder.glob("*.csv"))
        if not files:
            raise ValueError(f"Expected a folder of results, got {other.folder}: no CSV file.")
        taken = 0
        for scale in (file.stem for file in files):
            here = {row.key: row.commit for row in self.rows(scale)}
            for row in other.rows(scale):
                if row.key not in here or (row.commit and not here[row.key]):
                    self.add(row, other.arrays(row))
                    taken += 1
        return taken

    def arrays(self, row: Row) -> Arrays:
        """What was stored beside a row; see `paper.reproduce.arrays_of`."""
        path = self.arrays_file(row)
        try:
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path}, of {row.config}, seed {row.seed}, is missing or damaged. Remove it and "
                "make it again by varscale reproduce."
            ) from error

    def arrays_file(self, row: Row) -> Path:
        """Where the arrays of a row are."""
        name = f"{row.config.replace('/', '.')}-{label(row.dataset, row.precision)}-{row.seed}.npz"
        return self.folder / row.scale / name


def label(dataset: str, precision: str) -> str:
    """The dataset of a run, with its precision where that is not the usual one."""
    return dataset if precision == FLOAT32 else f"{dataset}-{precision}"


def chosen(candidates: list[dict[int, Row]]) -> dict[int, Row]:
    """The runs, by seed, of the candidate that is best in validation over the seeds all share."""
    seeds = set.intersection(*(set(runs) for runs in candidates)) if candidates else set()
    if not seeds:
        return {}
    return max(candidates, key=lambda runs: sum(runs[seed].val_accuracy for seed in seeds))
