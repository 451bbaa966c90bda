"""Log of a run: every step in metrics.jsonl, some of them in TensorBoard."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from varscale.core.files import write_whole

METRICS = "metrics.jsonl"


def read_metrics(path: Path, *, until: int | None = None) -> list[dict[str, Any]]:
    """Read the steps of a run's metrics, up to `until`; broken lines are left out."""
    rows = []
    file = path / METRICS
    for line in file.read_text(errors="replace").splitlines() if file.is_file() else ():
        try:
            row = json.loads(line)
            if until is None or row["step"] <= until:
                rows.append(row)
        except (ValueError, TypeError, KeyError):
            continue
    return rows


class Logbook:
    """The metrics of a run, of which `done` steps are kept and later ones removed.

    Only the main process writes. TensorBoard gets an event every `every` steps.
    """

    def __init__(self, path: Path, *, every: int, done: int, main: bool) -> None:
        self.every = every
        self.file: TextIO | None = None
        self.events: Any = None
        if not main:
            return
        rows = read_metrics(path, until=done)
        if len(rows) != done:
            warnings.warn(f"{path / METRICS} lacks {done - len(rows)} steps.", stacklevel=2)
        write_whole(path / METRICS, "".join(json.dumps(row) + "\n" for row in rows).encode())
        self.file = (path / METRICS).open("a", buffering=1)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:  # the extra `train` brings it
            return
        self.events = SummaryWriter(str(path), purge_step=done + 1)

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Log a step."""
        if self.file is None:
            return
        self.file.write(json.dumps(dict(metrics)) + "\n")
        step = metrics["step"]
        if self.events and (step % self.every == 0 or "val_accuracy" in metrics):
            for name, value in metrics.items():
                if name != "step":
                    self.events.add_scalar(_group(name), value, step)

    def __enter__(self) -> "Logbook":
        return self

    def __exit__(self, *_: object) -> None:
        if self.events:
            self.events.close()
        if self.file:
            self.file.close()


def _group(name: str) -> str:
    """Name a metric for TensorBoard, which groups names by what stands before the slash."""
    first, _, rest = ("lr_weights" if name == "lr" else name).partition("_")
    grouped = first in ("scale", "val", "lr", "cotraining") and rest
    return f"{first}/{rest}" if grouped else f"train/{name}"
