"""What every reader of images is, and what they share."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import ClassVar

from varscale.data.images import SUFFIXES, Record
from varscale.data.split import SPLITS, seeded_split
from varscale.data.tree import Tree, open_tree, parents
from varscale.registry import Registry

READERS: "Registry[Reader]" = Registry("format")

_ALIASES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class Options:
    """How to read and store a dataset.

    Attributes:
        size: Height and width of the stored images; the format's own when not given.
        grey: One channel instead of three; the format's own when not given.
        split: Omniglot: `vinyals` or `lake`. Class folders and embeddings without a split: shares
            of the classes for training, validation and test, such as `64/16/20`.
        seed: Seed of a split by shares.
        rotations: Omniglot: every quarter turn of a character is a class of its own.
        skip_bad: Leave out what cannot be read, and say what it was, instead of stopping.
    """

    size: int | None = None
    grey: bool | None = None
    split: str | None = None
    seed: int = 0
    rotations: bool = False
    skip_bad: bool = False


class Reader(ABC):
    """Lists the images of a dataset. A member implements `records`.

    Attributes:
        size: Usual height and width.
        grey: Whether its images have one channel.
        invert: Whether black and white are swapped, so that ink is bright.
    """

    size: ClassVar[int] = 84
    grey: ClassVar[bool] = False
    invert: ClassVar[bool] = False

    @abstractmethod
    def records(self, tree: Tree, options: Options) -> list[Record]:
        """All images, in any order."""

    def open(self, source: Path) -> Tree:
        """The files behind a path."""
        return open_tree(source)


def image_paths(tree: Tree) -> list[str]:
    """Paths that look like images."""
    return [path for path in tree.files if path.lower().endswith(SUFFIXES)]


def file_record(tree: Tree, path: str, class_name: str, split: str, where: str = "") -> Record:
    """A record of an image file; `where` adds to its name in messages."""
    name = f"{path} in {tree.name}" + (f" ({where})" if where else "")
    return Record(class_name, split, name, partial(tree.read, path), PurePosixPath(path).name)


def split_folders(tree: Tree) -> list[Record]:
    """Class folders under train, val and test folders; empty when there are none."""
    records = []
    for path in image_paths(tree):
        above = list(parents(path))  # nearest first
        for class_name, folder in pairwise(above):
            if folder.lower() in _ALIASES:
                records.append(file_record(tree, path, class_name, _ALIASES[folder.lower()]))
                break
    return records


def class_folders(tree: Tree, options: Options) -> list[Record]:
    """Class folders without a split, which a seed then makes."""
    paths = image_paths(tree)
    loose = [path for path in paths if "/" not in path]
    if loose:
        raise ValueError(
            f"Expected a folder for each class in {tree.name}, got images that lie in none, such "
            f"as {loose[0]}. Move them into folders named after their classes."
        )
    classes = [PurePosixPath(path).parent.as_posix() for path in paths]
    split = seeded_split(sorted(set(classes)), options.split or "64/16/20", options.seed)
    return [
        file_record(tree, path, class_name, split[class_name])
        for path, class_name in zip(paths, classes, strict=True)
    ]


def check_classes(records: Sequence[Record], source: str) -> None:
    """Refuse an empty dataset, and a class that stands in two splits."""
    if not records:
        raise ValueError(
            f"Expected images in {source}, got none that this format knows. "
            f"Image files end in {', '.join(SUFFIXES)}; docs/data.md shows the forms."
        )
    home: dict[str, str] = {}
    for record in records:
        other = home.setdefault(record.class_name, record.split)
        if other != record.split:
            raise ValueError(
                f"Expected every class in one split, got {record.class_name!r} in {other} and in "
                f"{record.split} ({record.where}). Few-shot splits are by class."
            )


def counts(names: Iterable[str]) -> str:
    """How many of each split, as train/val/test."""
    counted = Counter(names)
    return "/".join(str(counted[split]) for split in SPLITS)
