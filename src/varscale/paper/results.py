"""Results: one CSV row per run, and beside it the arrays that figures and differences need."""

import csv
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock

from varscale.core.files import write_whole

Arrays = dict[str, np.ndarray]

DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What reading a damaged zip file may raise."""

FLOAT32: Literal["32-true"] = "32-true"
"""The precision of a run unless it says another; see `config.TrainConfig`."""


@dataclass(frozen=True)
class Row:
    """One run and its test."""

    cell: str  # its name in the grid
    size: str  # of the experiment: small, frozen or paper
    seed: int  # of the training
    config_hash: str  # of the config as it was run
    dataset: str
    dataset_hash: str  # of its content
    item: str  # the size of an item
    steps: int
    best_step: int  # of the model that was tested, chosen in validation
    val_accuracy: float  # of that model; NaN where the last one was tested
    n_way: int  # of the test tasks, as are the next three
    n_shot: int
    n_query: int
    episodes: int
    accuracy: float  # over the test tasks, a fraction of 1
    ci95: float  # half-width over tasks
    nll: float  # of a query
    ece: float
    scale_mean: float  # of the scale that was tested; of D-AVS over the tasks of that step
    scale_min: float  # its smallest entry
    scale_max: float
    minutes: float  # of training and testing
    threads: int
    precision: str  # as `config.TrainConfig` names it
    version: str  # of varscale
    commit: str  # of varscale's source; empty where it is not known

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What tells it from every other row."""
        return self.cell, self.size, self.dataset, self.precision, self.seed

    @property
    def file(self) -> str:
        """What its arrays are called among those of its size."""
        return f"{self.cell}-{label(self.dataset, self.precision)}-{self.seed}.npz"


class Results:
    """A folder of results: for each size its rows, `small.csv`, and their arrays, `small.zip`.

    The zip file holds one npz file for each row.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, size: str) -> list[Row]:
        """Read the rows of a size."""
        path = self.folder / f"{size}.csv"
        if not path.is_file():
            return []
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            if "scale" in (reader.fieldnames or ()):
                raise ValueError(
                    f"{path} has an older layout. Take its rows over into a new folder: "
                    f"varscale reproduce table2 --show --results NEW --take {self.folder}."
                )
            try:
                rows = [parse_row(row) for row in reader]
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path} has a row that cannot be read: {error!r}.") from error
        for row in rows:
            if not (0 <= row.accuracy <= 1 and row.nll >= 0):
                raise ValueError(f"{path} has a row without an accuracy or NLL: {row.key}.")
        return rows

    def add(self, row: Row, arrays: Arrays) -> None:
        """Store a row in its place, and its arrays."""
        self.add_all([(row, arrays)])

    def add_all(self, found: Iterable[tuple[Row, Arrays]]) -> None:
        """Store rows in their places, and their arrays; several processes may do so at once."""
        found = list(found)
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):
            for size in sorted({row.size for row, _ in found}):
                new = [(row, arrays) for row, arrays in found if row.size == size]
                with self._archive(size) as file:
                    packed = {name: file.read(name) for name in file.namelist()}
                packed |= {row.file: _pack(arrays) for row, arrays in new}
                write_whole(self.folder / f"{size}.zip", _zip(packed))
                rows = {row.key: row for row in [*self.rows(size), *(row for row, _ in new)]}
                text = io.StringIO()
                writer = csv.DictWriter(text, [f.name for f in fields(Row)], lineterminator="\n")
                writer.writeheader()
                writer.writerows(asdict(rows[key]) for key in sorted(rows))
                write_whole(self.folder / f"{size}.csv", text.getvalue().encode())

    @contextmanager
    def _archive(self, size: str) -> Iterator[zipfile.ZipFile]:
        """Open the zip file of a size; an empty one if there is none."""
        path = self.folder / f"{size}.zip"
        empty = zipfile.ZipFile(io.BytesIO(), "w")
        try:
            with zipfile.ZipFile(path) if path.is_file() else empty as file:
                yield file
        except DAMAGE as error:
            raise ValueError(
                f"{path} is damaged. Restore it, or remove it to run again."
            ) from error

    def stored(self, size: str) -> set[str]:
        """The files (`Row.file`) of a size that are there."""
        with self._archive(size) as file:
            return set(file.namelist())

    def arrays(self, row: Row) -> Arrays:
        """Read what was stored beside a row; see `paper.reproduce.collect_arrays`."""
        path = self.folder / f"{row.size}.zip"
        try:
            with zipfile.ZipFile(path) as file:
                return unpack(file.read(row.file))
        except (OSError, KeyError, ValueError, *DAMAGE) as error:
            raise ValueError(
                f"{row.file} in {path} is missing or damaged. Remove the row from {row.size}.csv "
                "and make it again by varscale reproduce."
            ) from error


def parse_row(values: dict[str, str]) -> Row:
    """Make a row of a line of CSV."""
    kinds: dict[str, Any] = {f.name: f.type for f in fields(Row)}  # str, int or float
    return Row(**{name: kind(values[name]) for name, kind in kinds.items()})


def _pack(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack(content: bytes) -> Arrays:
    """Read the arrays of an npz file; never executes code."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _zip(files: dict[str, bytes]) -> bytes:
    """The same bytes for the same files, in whatever order they came."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in sorted(files):
            file.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def label(dataset: str, precision: str) -> str:
    """The dataset of a run, with its precision where that is not the usual one."""
    return dataset if precision == FLOAT32 else f"{dataset}-{precision}"


def choose(candidates: list[dict[int, Row]]) -> dict[int, Row]:
    """The runs, by seed, of the candidate that is best in validation over the seeds all share."""
    seeds = set.intersection(*(set(runs) for runs in candidates)) if candidates else set()
    if not seeds:
        return {}
    return max(candidates, key=lambda runs: sum(runs[seed].val_accuracy for seed in seeds))
