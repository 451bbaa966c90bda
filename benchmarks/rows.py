"""Rows of a benchmark: dataclasses in a CSV file, written one by one, so that a run can go on."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def read_rows(file: Path, kind: type[T]) -> list[T]:
    """Rows that are there."""
    if not file.is_file():
        return []
    kinds: dict[str, Any] = {f.name: f.type for f in fields(kind)}  # type: ignore[arg-type]
    with file.open(newline="") as lines:
        return [kind(**{n: kinds[n](v) for n, v in row.items()}) for row in csv.DictReader(lines)]


def append_rows(file: Path, rows: Sequence[Any]) -> None:
    """Write rows behind those that are there, numbers with six digits."""
    new = not file.is_file()
    with file.open("a", newline="") as lines:
        writer = csv.DictWriter(lines, [f.name for f in fields(rows[0])])
        if new:
            writer.writeheader()
        for row in rows:
            values = asdict(row).items()
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in values})
