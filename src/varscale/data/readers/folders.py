"""Images in class folders: your own, CUB-200-2011, tieredImageNet."""

import re

from varscale.data.images import Record
from varscale.data.readers.base import (
    READERS,
    Reader,
    ReaderOptions,
    class_folders,
    file_record,
    image_paths,
    split_folders,
)
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
        return records or class_folders(tree, options)


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
