"""A job: which items to answer with which model, and how. Small enough to send to a worker."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from varscale.items.answers import Form, Model, Part, answer_parts
from varscale.items.columns import Columns
from varscale.items.source import Items, open_items

LARGEST_CHUNK = 1 << 22
"""Probabilities to hold in memory at once."""
LARGEST_BATCH, LARGEST_RAW = 4096, 512
"""Items of a batch, at most: of embeddings, and of those that have to be embedded."""
REJECT = 0.1
"""Share of known items that may be called unknown, where a model can tell and nobody says."""


@dataclass(frozen=True)
class Job:
    """Items to answer, and how.

    Attributes:
        model: File of the model.
        source: Where the items are; see `open_items`.
        columns: Columns of a table; by default those that the model was fitted to.
        split: Of a file of embeddings, only the classes of that split.
        embedder: Where the embedder of the model is now, if it has moved.
        download: Whether it may be downloaded.
        skip_bad: Leave items that cannot be read without an answer.
        reject: Share of known items that may be called unknown.
        sets: Share of items whose class may be missing from their set; `None` makes no sets.
        top: Classes to name for each item.
    """

    model: str
    source: str
    columns: Columns = Columns()  # noqa: RUF009 - frozen
    split: str | None = None
    embedder: str | None = None
    download: bool = False
    skip_bad: bool = False
    reject: float | None = None
    sets: float | None = None
    top: int = 1

    def stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Sizes and times of the files that it reads: if they change, it is another job."""
        source = Path(self.source)
        paths = [Path(self.model)]
        try:
            if source.is_dir():
                paths += sorted(path for path in source.rglob("*") if path.is_file())
            elif source.exists():
                paths += [source, source.with_name("labels.npy")]
        except OSError:  # a text that is too long for a name
            pass
        found = [(str(path), path.stat()) for path in paths if path.exists()]
        return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)

    def open(self) -> "OpenJob":
        """Load the model and open the items."""
        model = self._graph() if Path(self.model).suffix.lower() == ".onnx" else self._fitted()
        if not 1 <= self.top <= len(model.classes):
            raise ValueError(
                f"Expected --top from 1 to {len(model.classes)}, the number of classes, got "
                f"{self.top}."
            )
        items = open_items(self.source, self.columns, split=self.split, fitted=model.columns)
        model.check_kind(items, model=self.model, source=self.source)
        form = Form(tuple(items.columns), self.top, self.sets is not None, self.skip_bad)
        return OpenJob(model, items, form)

    def _fitted(self) -> Model:
        """The model of a file that `varscale fit` wrote."""
        from varscale.items.model import load_model  # brings torch

        model = load_model(Path(self.model), embedder=self.embedder, download=self.download)
        model.reject, model.error = self.reject, self.sets
        for share in (self.reject, self.sets):
            if share is not None:
                model.check_share(share)
        if model.reject is None and model.can_reject(REJECT):
            model.reject = REJECT
        return model

    def _graph(self) -> Model:
        """The model of a file that `varscale export` wrote."""
        from varscale.items.graph import load_graph

        model = load_graph(Path(self.model), embedder=self.embedder, download=self.download)
        if self.reject is not None:
            fixed = "rejects nothing" if model.reject is None else f"rejects at {model.reject:g}"
            raise ValueError(
                f"{self.model} {fixed}, as it was exported; leave out --reject, or export it again "
                f"with --reject {self.reject:g}."
            )
        if self.sets is not None:
            raise ValueError(
                f"Sets of classes need the file that varscale fit wrote, got {self.model}; leave "
                "out --sets."
            )
        return model


@dataclass(frozen=True, eq=False)
class OpenJob:
    """A job with its model loaded and its items open.

    Attributes:
        model: Answers items.
        items: The items.
        form: Columns of the answers.
    """

    model: Model
    items: Items
    form: Form

    @property
    def size(self) -> int:
        """Items of a batch: the same wherever the job runs, so that its answers are."""
        limit = LARGEST_BATCH if self.items.kind == "embedding" else LARGEST_RAW
        return max(1, min(limit, LARGEST_CHUNK // len(self.model.classes)))

    def parts(self, start: int = 0, stop: int | None = None) -> Iterator[Part]:
        """Answer items from `start` on, until `stop`."""
        return answer_parts(self.model, self.items, self.form, self.size, start, stop)


def answer_range(job: Job, start: int, stop: int) -> list[Part]:
    """Answer some items of a job, in a process that keeps it open for the next ones."""
    return list(_keep_open(job, job.stamps()).parts(start, stop))


@lru_cache(maxsize=1)
def _keep_open(job: Job, stamps: object) -> OpenJob:
    """The job; opened again if a file of it has changed."""
    return job.open()
