"""All items of a source in memory, to fit a classifier to them."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from varscale.items.cache import Cache
from varscale.items.columns import Columns, Kind
from varscale.items.embed import embed_batch
from varscale.items.embedders.base import Embedder, make_embedder
from varscale.items.source import Batch, Items, OneItem, open_items

SIZE = 512
"""Items to read at once."""
LISTED = 5
"""Items that a message names, at most."""
LONGEST_SHOWN = 300
"""Characters of a text to show."""


@dataclass(frozen=True, eq=False)
class Collection:
    """Items in memory.

    Attributes:
        kind: What they are: texts, pictures or embeddings.
        columns: The columns that they come from.
        batches: The items, some at a time.
    """

    kind: Kind
    columns: Columns
    batches: list[Batch]

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    @property
    def contents(self) -> list[object]:
        """Texts, bytes of picture files, or rows of numbers."""
        return [content for batch in self.batches for content in batch.contents]

    @property
    def labels(self) -> np.ndarray:
        """Class of each item, empty where it has none."""
        found = [batch.labels or [""] * len(batch) for batch in self.batches]
        return np.array([label for some in found for label in some], dtype=str)

    @property
    def shown(self) -> list[str]:
        """The items for people: the beginning of a text, the path of a picture, a row."""
        if self.kind == "text":
            return [str(text)[:LONGEST_SHOWN] for text in self.contents]
        others = (name for name in self.batches[0].cells if name != self.columns.label)
        column = self.columns.image or next(others, None)
        if column is None:
            return [str(row) for row in range(len(self))]
        return [str(name) for batch in self.batches for name in batch.cells[column]]

    def keys(self) -> list[str]:
        """Hash of each item's content."""
        return [key.hex() for batch in self.batches for key in batch.keys]

    def embed(
        self,
        embedder: str | Embedder | None = None,
        *,
        skip_bad: bool = False,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Embed the items; what was embedded before comes from the cache.

        Args:
            embedder: The embedder, or the word that names it; `None` for embeddings.
            skip_bad: Leave out broken pictures and empty texts, instead of raising ValueError.
            tell: Called with the number of items that are done, and of all.

        Returns:
            Embeddings, one row each; the numbers of their items.
        """
        made = make_embedder(embedder) if isinstance(embedder, str) else embedder
        if made is None and self.kind != "embedding":
            raise ValueError(f"Expected an embedder of {self.kind}s, such as 'minilm', got none.")
        cache = Cache(made.identity) if made else None
        parts, bad = [], dict[int, str]()
        for batch in self.batches:
            rows, why = embed_batch(batch, made, cache)
            bad |= {batch.start + i: reason for i, reason in why.items()}
            parts.append(np.delete(rows, list(why), axis=0))
            tell(batch.start + len(batch), len(self))
        if bad and not skip_bad:
            listed = "; ".join(list(bad.values())[:LISTED])
            raise ValueError(
                f"{len(bad)} of {len(self)} items cannot be read: {listed.rstrip('.')}. "
                "Repair them, or leave them out: --skip_bad."
            )
        good = np.delete(np.arange(len(self)), list(bad))
        if not len(good):
            raise ValueError("Expected items that can be read, got none.")
        return np.concatenate([part for part in parts if len(part)]), good

    def conflicts(self) -> list[str]:
        """Items that occur more than once with different labels, described for people."""
        found = defaultdict(set)
        for key, label, text in zip(self.keys(), self.labels.tolist(), self.shown, strict=True):
            if label and text:
                found[key].add((label, text))
        twice = [pairs for pairs in found.values() if len({label for label, _ in pairs}) > 1]
        return [
            f"{min(text for _, text in pairs)[:60]!r} is {' and '.join(sorted(dict(pairs)))}"
            for pairs in twice
        ]


def read(
    source: str | Path,
    *,
    text: str | None = None,
    image: str | None = None,
    embedding: str | None = None,
    label: str | None = None,
    split: str | None = None,
) -> Collection:
    """Read all items of a table, a folder of pictures or a file of embeddings.

    Args:
        source: A CSV, JSONL or parquet file; a folder of class folders; an npz, npy or safetensors
            file of embeddings.
        text: Column of texts.
        image: Column of paths of pictures.
        embedding: Column of embeddings.
        label: Column of classes; items with an empty cell are unlabelled.
        split: Of a file of embeddings, only the classes of that split.
    """
    return gather(open_items(source, Columns(text, image, embedding, label), split=split))


def gather(items: Items) -> Collection:
    """Read all items into memory; a single one, such as a misspelt file, is not enough."""
    if isinstance(items, OneItem):
        raise ValueError(
            f"Expected a table, a folder or a file of embeddings, got {items.name!r}, which is a "
            f"single {items.kind}. If it is a file or folder, check its name."
        )
    return Collection(items.kind, items.used, list(items.batches(SIZE)))
