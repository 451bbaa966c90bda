"""Images in class folders: your own, CUB-200-2011, tieredImageNet."""

import re
from pathlib import PurePosixPath

from varscale.data.images import Record
from varscale.data.readers.base import (
    ALIASES,
    READERS,
    Reader,
    ReaderOptions,
    file_record,
    image_paths,
    split_folders,
)
from varscale.data.split import split_classes
from varscale.data.tree import Tree


@READERS.register("folder")
class ClassFolders(Reader):
    """Any folder of class folders, with or without train, val and test folders above them."""

    options = (*Reader.options, "split", "seed")

    def records(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        """List images by folder; a seed splits the classes if no folders do."""
        records = split_folders(tree)
        if records and options.split is not None:
            raise ValueError(f"{tree.name} has its split in folders; leave out --split.")
        return records or self._split(tree, options)

    def _split(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        paths = image_paths(tree)
        loose = [path for path in paths if "/" not in path]
        if loose:
            raise ValueError(
                f"Expected a folder for each class in {tree.name}, got images outside of folders, "
                f"such as {loose[0]}. Move them into folders named after their classes."
            )
        classes = [PurePosixPath(path).parent.as_posix() for path in paths]
        inside = [name for name in classes if PurePosixPath(name).name.lower() in ALIASES]
        if inside:
            raise ValueError(
                f"Expected class folders in {tree.name}, got {inside[0]!r}: few-shot splits are by "
                "class, so a split goes above the classes, not into them."
            )
        home = split_classes(sorted(set(classes)), options.split or "64/16/20", options.seed)
        found = zip(paths, classes, strict=True)
        return [file_record(tree, path, name, home[name]) for path, name in found]


@READERS.register("tieredimagenet")
class TieredImageNet(Reader):
    """tieredImageNet as class folders under train, val and test."""

    def records(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        """List images by split and class folder."""
        return split_folders(tree)


@READERS.register("cub")
class CUB(Reader):
    """CUB-200-2011 as distributed: 200 numbered class folders.

    The usual split, with classes numbered from 0: number mod 4 in {0, 2} is train, 1 val, 3 test.
    """

    def records(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        """List images by numbered class folder."""
        records = []
        for path in image_paths(tree):
            folder = re.search(r"(?:^|/)((\d{3})\.[^/]+)/[^/]+$", path)
            if folder:
                split = ("train", "val", "train", "test")[(int(folder[2]) - 1) % 4]
                records.append(file_record(tree, path, folder[1], split))
        return records
