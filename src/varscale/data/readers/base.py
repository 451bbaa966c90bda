"""Base class of image readers, and the functions that they share."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from varscale.core.registry import Registry
from varscale.data.images import Record
from varscale.data.split import SPLITS, check_names, check_two
from varscale.data.tree import PICTURES, Tree, open_tree

READERS: "Registry[Reader]" = Registry("format")

ALIASES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class ReaderOptions:
    """How to read and store a dataset.

    Attributes:
        size: Height and width of the stored images; the format's default if not given.
        grey: One channel instead of three; the format's default if not given.
        split: Omniglot: `vinyals` or `lake`. Class folders and embeddings without a split: shares
            of the classes for training, validation and test, such as `64/16/20`.
        seed: Seed of a split by shares.
        rotations: Omniglot: every quarter turn of a character is a class of its own.
        skip_bad: Leave out and list images that cannot be read, instead of stopping.
    """

    size: int | None = None
    grey: bool | None = None
    split: str | None = None
    seed: int = 0
    rotations: bool = False
    skip_bad: bool = False


class Reader(ABC):
    """List the images of a dataset. A member implements `records`."""

    size: ClassVar[int] = 84  # default height and width
    grey: ClassVar[bool] = False  # whether images have one channel by default
    invert: ClassVar[bool] = False  # whether to swap black and white, so that ink is bright
    options: ClassVar[tuple[str, ...]] = ("size", "grey", "skip_bad")  # `ReaderOptions` that apply

    @abstractmethod
    def records(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        """List all images, in any order."""

    def open(self, source: Path) -> Tree:
        """Open the files of a source."""
        return open_tree(source)


def image_paths(tree: Tree) -> list[str]:
    """Paths with the ending of a picture file."""
    paths = [path for path in tree.files if path.lower().endswith(PICTURES)]
    check_names(paths, "image", tree.name)
    return paths


def file_record(tree: Tree, path: str, class_name: str, split: str, where: str = "") -> Record:
    """Record of an image file; `where` is added to its name in messages."""
    name = f"{path} in {tree.name}" + (f" ({where})" if where else "")
    return Record(class_name, split, name, partial(tree.read, path), PurePosixPath(path).name)


def array_record(
    images: np.ndarray, row: int, class_name: str, split: str, where: str, part: str = ""
) -> Record:
    """Record of a row of an array of images; rows of one class in several arrays need a `part`."""
    load = partial(images.__getitem__, row)
    return Record(class_name, split, f"image {row} of {where}", load, f"{part}{row:08d}")


def split_folders(tree: Tree) -> list[Record]:
    """Records from class folders under train, val and test folders; empty if there are none."""
    records, others = [], []
    for path in image_paths(tree):
        above = PurePosixPath(path).parts[:-1][::-1]  # nearest first
        found = [(name, home) for name, home in pairwise(above) if home.lower() in ALIASES]
        if found:
            class_name, folder = found[0]
            records.append(file_record(tree, path, class_name, ALIASES[folder.lower()]))
        else:
            others.append(path)
    if records and others:
        raise ValueError(
            f"Expected all images of {tree.name} in class folders under train, val and test, or "
            f"none, got {others[0]} outside. Move it, or rename the folder that looks like a split."
        )
    return records


def check_images(images: Any, labels: Sized, where: str) -> None:
    """Raise ValueError if an array does not hold uint8 images, one for each label."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim not in (3, 4):
        got = f"{getattr(images, 'dtype', type(images).__name__)}"
        raise ValueError(f"Expected images as a uint8 array in {where}, got {got}.")
    if len(images) != len(labels):
        raise ValueError(
            f"Expected one label for each of {len(images)} images in {where}, got {len(labels)}."
        )


def check_classes(records: Sequence[Record], source: str) -> None:
    """Raise ValueError for fewer than two classes, a class in two splits, or names not in UTF-8."""
    if not records:
        raise ValueError(
            f"Expected images in {source}, got none that this format knows. "
            f"Image files end in {', '.join(PICTURES)}; docs/data.md shows the formats."
        )
    home: dict[str, str] = {}
    for record in records:
        other = home.setdefault(record.class_name, record.split)
        if other != record.split:
            raise ValueError(
                f"Expected every class in one split, got {record.class_name!r} in {other} and in "
                f"{record.split} ({record.where}). Few-shot splits are by class."
            )
    check_names(home, "class", source)
    check_two(home, source)


def counts(names: Iterable[str]) -> str:
    """Count the names of each split, as train/val/test."""
    counted = Counter(names)
    return "/".join(str(counted[split]) for split in SPLITS)
