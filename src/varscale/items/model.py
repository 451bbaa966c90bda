"""A classifier of items: a fitted classifier, its embedder, and the items it was fitted to."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from varscale.classifier import FewShotClassifier
from varscale.classifier.file import read_about
from varscale.items.answers import Model, Scores
from varscale.items.cache import Cache
from varscale.items.collection import Collection
from varscale.items.columns import Columns, Kind, are_sound
from varscale.items.embed import embed_batch
from varscale.items.embedders.base import Embedder, fitted_embedder, make_embedder
from varscale.items.source import Batch

COUNTS = ("items", "unlabelled", "unreadable")
"""What is counted of each file that a model was fitted to."""


@dataclass(eq=False)
class ItemModel(Model):
    """A fitted classifier with what it needs to answer items.

    Attributes:
        classifier: The classifier.
        embedder: What embeds items; `None` if they are embeddings.
        columns: Columns of the table that it was fitted to.
        shown: The examples for people: the beginning of a text, the path of a picture.
        keys: Hashes of the examples' contents.
        sources: Name, items, unlabelled and unreadable ones of each file that it was fitted to.
        reject: Share of known items that may be called unknown; `None` calls none so.
        error: Share of items whose class may be missing from their set; `None` makes no sets.
        cache: Embeddings made before.
    """

    classifier: FewShotClassifier
    embedder: Embedder | None = None
    columns: Columns = Columns()  # noqa: RUF009 - frozen
    shown: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    reject: float | None = None
    error: float | None = None
    cache: Cache | None = None

    @property
    def takes(self) -> Kind | None:  # type: ignore[override]
        """What it takes; `None` for texts and pictures."""
        return "embedding" if self.embedder is None else self.embedder.takes

    @property
    def classes(self) -> list[Any]:
        """The classes, sorted."""
        return list(self.classifier.classes_.tolist())

    def can_reject(self, share: float) -> bool:
        """Whether the prior can tell which items belong to none of the classes."""
        law, counts = self.classifier.prior_.conformity, self.classifier.counts_
        return law is not None and share > law.smallest_share(torch.from_numpy(counts).clamp_min(1))

    def check_share(self, share: float) -> None:
        """Raise ValueError if items cannot be rejected, or sets made, at such a share."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is said when items are answered
            self.classifier.prior_.floor(torch.ones(1, dtype=torch.long), share)

    def score(self, batch: Batch) -> Scores:
        """Score a batch of items."""
        x, bad = embed_batch(batch, self.embedder, self.cache)
        self._check_dim(x)
        if x.shape[1] == 0:  # none could be read
            x = np.zeros((len(x), self.classifier.n_features_in_), dtype=np.float32)
        unknown = None if self.reject is None else self.classifier.is_unknown(x, self.reject)
        sets = None if self.error is None else self.classifier.predict_set(x, self.error)
        known = set(self.keys)
        own = np.array([key.hex() in known for key in batch.keys])
        return Scores(self.classifier.predict_proba(x), unknown, sets, bad, own)

    def add(
        self,
        items: Collection,
        *,
        learn: bool = False,
        names: bool = False,
        skip_bad: bool = False,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """Fit the classifier to the labelled items, or add them to those that it has.

        Args:
            items: The items.
            learn: Fit the classifier; otherwise keep its examples and add these.
            names: Use the names of the classes, as texts, as one more example of each (M43).
            skip_bad: Leave out broken pictures and empty texts, instead of raising ValueError.
            tell: Called with the number of items that are embedded, and of all.

        Returns:
            How many were left out, because they cannot be read.
        """
        if (items.labels == "").all():
            raise ValueError(
                "Expected the classes of the items, got none. Of a table, --label names their "
                "column, which must not be empty; pictures lie in folders named like the classes; "
                "embeddings need an array of labels."
            )
        x, rows = items.embed(self.embedder, skip_bad=skip_bad, tell=tell)
        if not learn:
            self._check_dim(x)
        keys, labels = items.keys(), items.labels[rows]
        has = (labels != "") & ~self._repeated([keys[i] for i in rows], labels, learn=learn)
        if not has.any():
            raise ValueError("Expected new labelled items, got only some that the model has.")
        fit = self.classifier.fit if learn else self.classifier.partial_fit
        fit(x[has], labels[has], names=self._embed_names(labels[has]) if names else None)
        before = 0 if learn else len(self.classifier.examples_) - int(has.sum())
        for kept, new in ((self.shown, items.shown), (self.keys, keys)):
            kept[before:] = [""] * (before - len(kept)) + [new[i] for i in rows[has]]
        return len(items) - len(rows)

    def _check_dim(self, x: np.ndarray) -> None:
        dim = self.classifier.n_features_in_
        if x.shape[1] not in (0, dim):  # 0: none could be read
            raise ValueError(
                f"Expected embeddings of {dim} numbers, which the classifier was fitted to, got "
                f"{x.shape[1]}."
            )

    def _repeated(self, keys: list[str], labels: np.ndarray, *, learn: bool) -> np.ndarray:
        """Which items occur a second time with the same label: they tell nothing new."""
        seen: set[tuple[str, str]] = set()
        if not learn:
            own = self.classifier.classes_[self.classifier.labels_]
            seen = set(zip(self.keys, map(str, own.tolist()), strict=False))
        found = np.zeros(len(keys), dtype=bool)
        for i, pair in enumerate(zip(keys, labels.tolist(), strict=True)):
            found[i] = pair in seen and pair[1] != ""
            seen.add(pair)
        if found.any():
            warnings.warn(
                f"{int(found.sum()):,} items are repeated with the same label; each counts once.",
                stacklevel=3,
            )
        return found

    def _embed_names(self, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Embed the names of classes, written with spaces."""
        if self.embedder is None or self.embedder.takes == "image":
            raise ValueError("Names of classes need an embedder of texts; leave out --names.")
        classes = np.unique(labels).tolist()
        texts = [name.replace("_", " ").replace("-", " ") for name in classes]
        batch = Batch(0, {}, texts, None, lambda row: f"the class {classes[row]!r}")
        x, _ = embed_batch(batch, self.embedder, self.cache)
        return dict(zip(classes, x, strict=True))

    def save(self, path: Path) -> None:
        """Write the classifier, and what belongs to its items, into one file."""
        about: dict[str, Any] = {"columns": asdict(self.columns), "keys": self.keys}
        about |= {"shown": self.shown, "sources": self.sources}
        if self.embedder is not None:
            about["embedder"] = {"spec": self.embedder.spec, "identity": self.embedder.identity}
        self.classifier.save(path, about)


def load_model(
    path: Path,
    *,
    embedder: str | None = None,
    download: bool = False,
    make: Callable[..., Embedder] | None = make_embedder,
) -> ItemModel:
    """Load what `ItemModel.save` wrote, with the embedder that it was fitted with.

    Args:
        path: The file.
        embedder: Where that embedder is now, if it has moved.
        download: Whether it may be downloaded.
        make: Makes an embedder of a word; with `None` the model has none, and cannot answer items.

    Raises ValueError if the embedder is another one, even if its embeddings are as long.
    """
    classifier = FewShotClassifier.load(path)
    about = about_items(path, len(classifier.examples_))
    model = ItemModel(classifier, shown=about.get("shown", []), keys=about.get("keys", []))
    model.columns = Columns(**about.get("columns", {}))
    model.sources = about.get("sources", [])
    fitted = about.get("embedder")
    if fitted is None:
        if embedder is not None:
            raise ValueError(
                f"{path} was fitted to embeddings, so it takes embeddings. Fit it to items to use "
                f"{embedder}."
            )
        return model
    if make is None:
        return model
    made = fitted_embedder(path, fitted, given=embedder, download=download, make=make)
    model.embedder, model.cache = made, Cache(made.identity)
    return model


def about_items(path: Path, n_items: int) -> dict[str, Any]:
    """Read what a file says about its items; raise ValueError if that is not `ItemModel.save`'s."""

    def is_text(value: object) -> bool:
        return isinstance(value, str)

    about = read_about(path)
    lists = [about.get(name, []) for name in ("shown", "keys")]
    sources = about.get("sources", [])
    sound = (
        all(isinstance(some, list) and all(map(is_text, some)) for some in lists)
        and all(len(some) in (0, n_items) for some in lists)
        and are_sound(about.get("columns", {}), about.get("embedder"))
        and isinstance(sources, list)
        and all(isinstance(s, dict) and is_text(s.get("name")) for s in sources)
        and all(isinstance(s.get(name), int) for s in sources for name in COUNTS)
    )
    if not sound:
        raise ValueError(f"{path} is not a classifier that varscale saved: its items are damaged.")
    return about
