"""Answers to items as a CSV file: batch by batch, so that memory does not grow with the file."""

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from varscale.items.columns import PLURALS, Columns, Kind
from varscale.items.source import Batch, Items, OneItem

DIGITS = 6
"""Decimals of a probability."""
SEPARATOR = "|"
"""Between the classes of a set."""
ADDED = ["label", "probability", "unknown"]
"""Columns of an answer, behind those of the user."""
RENAMED = "predicted_"
"""Put before the name of a column of ours that the user has too."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins so for a formula."""


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model says about a batch.

    Attributes:
        probability: One row per item, one column per class.
        unknown: Whether each belongs to none of the classes; `None` where that cannot be told.
        sets: Classes that each may belong to; `None` if nobody asked.
        bad: Why some items could not be read, by place in the batch.
        own: Which items are examples that the model was fitted to.
    """

    probability: np.ndarray
    unknown: np.ndarray | None
    sets: np.ndarray | None
    bad: dict[int, str]
    own: np.ndarray


class Model(ABC):
    """What answers items: a fitted classifier and its embedder, or one graph of both.

    Attributes:
        columns: Columns of the table that it was fitted to.
        takes: What it takes; `None` for texts and pictures.
        reject: Share of known items that it may call unknown; `None` calls none so.
    """

    columns: Columns
    takes: Kind | None
    reject: float | None

    @property
    @abstractmethod
    def classes(self) -> list[Any]:
        """The classes, in the order of the probabilities."""

    def check_kind(self, items: Items, *, model: str, source: str) -> None:
        """Raise ValueError if it does not take items of their kind.

        Args:
            items: The items.
            model: Its file, for the message.
            source: Where the items are, for the message.
        """
        if items.kind == self.takes or (self.takes is None and items.kind != "embedding"):
            return
        is_text = items.kind == "text" and isinstance(items, OneItem)
        got = (
            f"a text: there is no file {source}" if is_text else f"{PLURALS[items.kind]}: {source}"
        )
        raise ValueError(f"Expected {PLURALS[self.takes]}, which {model} was fitted to, got {got}.")

    @abstractmethod
    def score(self, batch: Batch) -> Scores:
        """Score a batch of items."""


@dataclass
class Tally:
    """What is counted on the way."""

    items: int = 0
    labelled: int = 0
    right: int = 0
    unknown: int = 0
    bad: int = 0
    own: int = 0

    def __iadd__(self, other: "Tally") -> "Tally":
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
        return self


@dataclass(frozen=True)
class Form:
    """Which columns an answer has: those of the user, then label, probability, unknown.

    Attributes:
        columns: The user's columns.
        top: Classes to name for each item, likeliest first.
        sets: Whether to add the set of possible classes.
        skip_bad: Leave items that cannot be read without an answer, instead of raising ValueError.
    """

    columns: tuple[str, ...]
    top: int = 1
    sets: bool = False
    skip_bad: bool = False

    def added(self) -> list[str]:
        """Columns that are added; one that the user has already is called predicted_..."""
        names = list(ADDED)
        for place in range(2, self.top + 1):
            names += [f"label_{place}", f"probability_{place}"]
        names += ["labels"] if self.sets else []
        taken, free = set(self.columns), []
        for name in names:
            while name in taken:
                name = f"{RENAMED}{name}"
            taken.add(name)
            free.append(name)
        return free

    def header(self) -> list[str]:
        """All columns."""
        return [*self.columns, *self.added()]


def answer_batch(model: Model, batch: Batch, form: Form) -> tuple[list[dict[str, Any]], Tally]:
    """Answer a batch: one row per item, by column, and what was counted."""
    scores = model.score(batch)
    if scores.bad and not form.skip_bad:
        reason = next(iter(scores.bad.values())).rstrip(".")
        raise ValueError(f"{reason}. Repair it, or leave such items unanswered: --skip_bad.")
    p, added, classes = scores.probability, form.added(), model.classes
    likeliest = p.argmax(1)[:, None]
    if form.top > 1:
        likeliest = np.argsort(-p, axis=1, kind="stable")[:, : form.top]
    chances = np.take_along_axis(p, likeliest, 1)
    rows = []
    for i in range(len(batch)):
        cells = {name: column[i] for name, column in batch.cells.items()}
        if i in scores.bad:
            rows.append(cells | dict.fromkeys(added, ""))
            continue
        named = [classes[k] for k in likeliest[i]]
        chance = [round(float(c), DIGITS) for c in chances[i]]
        values: list[Any] = [named[0], chance[0]]
        values.append("" if scores.unknown is None else bool(scores.unknown[i]))
        for pair in zip(named[1:], chance[1:], strict=True):
            values += pair
        if form.sets:
            assert scores.sets is not None
            members = np.flatnonzero(scores.sets[i])
            values.append(SEPARATOR.join(str(classes[k]) for k in members))
        rows.append(cells | dict(zip(added, values, strict=True)))
    tally = Tally(len(batch), bad=len(scores.bad), own=int(scores.own.sum()))
    if scores.unknown is not None:
        tally.unknown = int(np.delete(scores.unknown, list(scores.bad)).sum())
    known = set(map(str, classes))
    for i, label in enumerate(batch.labels or ()):
        if str(label) in known and i not in scores.bad:
            tally.labelled += 1
            tally.right += str(classes[likeliest[i, 0]]) == str(label)
    return rows, tally


def to_csv(rows: list[dict[str, Any]], header: list[str] | None = None) -> str:
    """Rows as lines of CSV, formulas of spreadsheets made harmless; a header if there is one."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if header is not None:
        writer.writerow([_harmless(name) for name in header])
    for row in rows:
        writer.writerow([_cell(value) for value in row.values()])
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return _harmless(value) if isinstance(value, str) else value


def _harmless(text: str) -> str:
    """Put an apostrophe before what a spreadsheet would run; numbers stay as they are."""
    if not text.startswith(FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


Part = tuple[int, str, Tally]
"""Number of the next item, lines of CSV, and what was counted."""


def answer_parts(
    model: Model, items: Items, form: Form, size: int, start: int = 0, stop: int | None = None
) -> Iterator[Part]:
    """Answer items from `start` on, until `stop`, as lines of CSV."""
    for batch in items.batches(size, start):
        rows, tally = answer_batch(model, batch, form)
        yield batch.start + len(batch), to_csv(rows), tally
        if stop is not None and batch.start + len(batch) >= stop:
            return
