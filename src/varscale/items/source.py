"""Items of a user: texts or pictures of a table, pictures in folders, or embeddings."""

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from varscale.data.embeddings import SUFFIXES, read_items
from varscale.data.tree import MAX_PICTURE, PICTURES, Tree, open_tree
from varscale.items.cache import content_key
from varscale.items.columns import KINDS, Columns, Kind, choose_columns
from varscale.items.tables import TABLES, Cells, Table

FILES = (
    ".zip", ".tar", ".gz", ".tgz", ".xlsx", ".xls", ".ods", ".txt", ".json", ".pdf", ".doc",
    ".docx", ".html", ".xml", ".pt", ".pth", ".pkl", ".h5", ".onnx", ".bin",
)  # fmt: skip
"""Other endings of files: a word that ends so is a file that is not there, not a text."""
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
ROW = "item"
"""Column that names an item where the user's file has no columns: its row, or its path."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some items, one after another.

    Attributes:
        start: Number of the first.
        cells: The user's columns.
        contents: What to embed: texts or bytes of pictures; or embeddings, one row each.
        labels: Class of each, empty where there is none; `None` if no item has any.
        where: Says in a message where the item of a given number stands.
        bad: Why some items cannot be read, by place in the batch.
    """

    start: int
    cells: Cells
    contents: Any
    labels: list[str] | None
    where: Any
    bad: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.contents)

    @cached_property
    def keys(self) -> list[bytes]:
        """Hash of each item's content."""
        return [content_key(content) for content in self.contents]

    def check(
        self, rows: np.ndarray, places: list[int] | None = None, spec: str | None = None
    ) -> None:
        """Raise ValueError if embeddings have NaN or infinity.

        Args:
            rows: Embeddings of items.
            places: Their places in the batch; by default all.
            spec: The embedder that made them.
        """
        lost = np.flatnonzero(~np.isfinite(rows).all(1))
        if len(lost):
            first = lost[0] if places is None else places[lost[0]]
            who = f" of the embedder {spec}" if spec else ""
            raise ValueError(
                f"Expected finite numbers as embeddings{who}, got NaN or infinity for "
                f"{self.where(self.start + first)} and {len(lost) - 1} others of its batch."
            )


class Items:
    """Items of a source, read some at a time.

    Attributes:
        kind: What the items are.
        columns: Columns of the user's to keep, in order.
        used: The columns that were chosen.
        total: Number of items.
    """

    kind: Kind
    columns: list[str]
    used: Columns = Columns()
    total: int

    def batches(self, size: int, start: int = 0) -> Iterator[Batch]:
        """Yield `size` items at a time, from item `start` on."""
        raise NotImplementedError


class TableItems(Items):
    """Items of a table."""

    def __init__(self, table: Table, given: Columns, fitted: Columns | None = None) -> None:
        self.table = table
        self.used = choose_columns(table, given, fitted)
        self.kind = next(kind for kind in KINDS if getattr(self.used, kind) is not None)
        self.columns = [c for c in table.columns if c != self.used.embedding]
        self.total = table.count()
        if not self.total:
            raise ValueError(f"Expected items in {table.path}, got a header and no rows.")

    def batches(self, size: int, start: int = 0) -> Iterator[Batch]:
        """Yield `size` items at a time, from item `start` on."""
        column = getattr(self.used, self.kind)
        for cells in self.table.batches(size, start, self.used.embedding):
            contents, bad = cells[column], dict[int, str]()
            if self.kind == "image":
                contents, bad = _read_pictures(self.table.path.parent, contents)
            elif self.kind == "text":
                empty = [i for i, text in enumerate(contents) if not text.strip()]
                bad = {i: f"{self.table.where(start + i)}: its text is empty" for i in empty}
            labels = None
            if self.used.label is not None:
                labels = [cell.strip() for cell in cells[self.used.label]]
            kept = {name: cells[name] for name in self.columns}
            yield Batch(start, kept, contents, labels, self.table.where, bad)
            start += len(contents)


class FolderItems(Items):
    """Pictures in a folder or archive; the class of one is the folder that it lies in."""

    kind = "image"

    def __init__(self, tree: Tree) -> None:
        self.tree, self.columns = tree, [ROW]
        self.paths = [path for path in tree.files if path.lower().endswith(PICTURES)]
        if not self.paths:
            raise ValueError(f"Expected images in {tree.name}, got none.")
        self.total = len(self.paths)
        self.parents = [PurePosixPath(path).parent.name for path in self.paths]

    def batches(self, size: int, start: int = 0) -> Iterator[Batch]:
        """Yield `size` items at a time, from item `start` on."""
        for begin in range(start, len(self.paths), size):
            some = self.paths[begin : begin + size]
            contents, bad = _read_all(some, self.tree.read)
            labels = self.parents[begin : begin + size] if any(self.parents) else None
            yield Batch(begin, {ROW: some}, contents, labels, self._where, bad)

    def _where(self, row: int) -> str:
        return f"{self.paths[row]} in {self.tree.name}"


class OneItem(Items):
    """A single text, or a single picture."""

    def __init__(self, content: str | bytes, name: str, kind: Kind) -> None:
        self.kind, self.columns, self.total = kind, [ROW], 1
        self.content, self.name = content, name

    def batches(self, size: int, start: int = 0) -> Iterator[Batch]:
        """Yield the item."""
        if not start:
            yield Batch(0, {ROW: [self.name]}, [self.content], None, lambda _: self.name)


class EmbeddedItems(Items):
    """Embeddings of an npz, npy or safetensors file."""

    kind = "embedding"

    def __init__(self, path: Path, split: str | None = None) -> None:
        self.path, self.columns = path, [ROW]
        self.embeddings, classes, rows = read_items(path, split)
        self.rows = [str(row) for row in rows]
        self.classes = None if classes is None else classes.tolist()
        self.total = len(self.rows)

    def batches(self, size: int, start: int = 0) -> Iterator[Batch]:
        """Yield `size` items at a time, from item `start` on."""
        for begin in range(start, len(self.rows), size):
            part = slice(begin, begin + size)
            labels = None if self.classes is None else self.classes[part]
            yield Batch(begin, {ROW: self.rows[part]}, self.embeddings[part], labels, self._where)

    def _where(self, row: int) -> str:
        return f"row {self.rows[row]} of {self.path}"


def open_items(
    source: str | Path,
    columns: Columns = Columns(),  # noqa: B008 - frozen
    *,
    split: str | None = None,
    fitted: Columns | None = None,
) -> Items:
    """Open what lies at a path: a table, pictures or embeddings; any other text is an item itself.

    Args:
        source: A CSV, JSONL or parquet file; a folder or archive of pictures; one picture; an npz,
            npy or safetensors file of embeddings; or a text.
        columns: Columns of a table to use; those that are not given are found if there is no doubt.
        split: Of a file of embeddings, only the classes of that split.
        fitted: Columns that a model was fitted to, which serve where `columns` name none.
    """
    if not str(source).strip():
        raise ValueError("Expected a file, a folder or a text, got an empty one.")
    path = Path(source)
    ending = path.suffix.lower()
    named = any(getattr(columns, kind) is not None for kind in KINDS)
    try:
        there = path.exists()
    except OSError:  # a text that is too long for a name
        there = False
    if split is not None and ending not in SUFFIXES:
        raise ValueError(f"Only files of embeddings have a split; leave out --split for {source}.")
    if ending in TABLES or ending in SUFFIXES or there:
        if not there:
            raise ValueError(f"Expected a file at {path}, got none.")
        if ending in TABLES:
            return TableItems(TABLES[ending](path), columns, fitted)
        if named:
            raise ValueError(f"Only tables have columns; leave them out for {source}.")
        if ending in SUFFIXES:
            return EmbeddedItems(path, split)
        if ending in PICTURES:
            return OneItem(path.read_bytes(), str(source), "image")
        if path.is_dir() or path.name.endswith(ARCHIVES):
            return FolderItems(open_tree(path))
        raise ValueError(
            f"Expected a table ({', '.join(TABLES)}), embeddings ({', '.join(SUFFIXES)}), a folder "
            f"of images or an image, got {source}."
        )
    endings = (*TABLES, *SUFFIXES, *PICTURES, *FILES)
    looks_like_a_path = "/" in str(source) or get_close_matches(ending, endings, cutoff=0.75)
    if looks_like_a_path and not re.search(r"\s", str(source)):
        raise ValueError(
            f"Expected a file or folder at {path}, got none. If it is a text, put it into a table."
        )
    return OneItem(str(source), str(source), "text")


def _read_pictures(folder: Path, paths: list[str]) -> tuple[list[bytes], dict[int, str]]:
    return _read_all(paths, lambda path: _read_picture(folder, path))


def _read_picture(folder: Path, path: str) -> bytes:
    """Read a file that a table names; raise ValueError for what would not end, such as a pipe."""
    if not path.strip():
        raise ValueError("its cell is empty")
    facts = (folder / path).stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{path} is not a file")
    if facts.st_size > MAX_PICTURE:
        raise ValueError(
            f"expected at most {MAX_PICTURE:,} bytes in a picture, got {facts.st_size:,} in {path}"
        )
    return (folder / path).read_bytes()


def _read_all(paths: list[str], read: Any) -> tuple[list[bytes], dict[int, str]]:
    contents, bad = [], {}
    for i, path in enumerate(paths):
        try:
            contents.append(read(path))
        except (OSError, ValueError) as error:
            contents.append(b"")
            why = str(getattr(error, "strerror", None) or error)
            bad[i] = why if path in why else f"{path or 'a picture'}: {why}"
    return contents, bad
