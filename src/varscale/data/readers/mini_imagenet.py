"""miniImageNet, in each of the forms it goes round in."""

import csv
import io
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from varscale.data.images import Record
from varscale.data.pickles import read_pickle
from varscale.data.readers.base import (
    READERS,
    Options,
    Reader,
    file_record,
    image_paths,
    split_folders,
)
from varscale.data.split import SPLITS
from varscale.data.tree import Tree

_CACHE = "mini-imagenet-cache-{}.pkl"
_CATEGORY = "miniImageNet_category_split_{}.pickle"


@READERS.register("miniimagenet")
class MiniImageNet(Reader):
    """miniImageNet with the split of Ravi and Larochelle, 64 / 16 / 20 classes.

    Understands train.csv, val.csv and test.csv beside a flat folder of images or beside class
    folders; class folders under train, val and test; and two families of pickles.
    """

    def records(self, tree: Tree, options: Options) -> list[Record]:
        """Images from whichever form is there."""
        if tree.find(*(_CACHE.format(split) for split in SPLITS)):
            return _pickled(tree, _CACHE, _from_cache)
        if tree.find(_CATEGORY.format("train_phase_train")):
            return _pickled(tree, _CATEGORY, _from_category)
        if tree.find("train.csv"):
            return _listed(tree)
        return split_folders(tree)


def _listed(tree: Tree) -> list[Record]:
    """Images named in csv files, found by class folder and name, or by name alone."""
    by_name: dict[str, str] = {}
    by_folder: dict[tuple[str, str], str] = {}
    for path in image_paths(tree):
        *_, folder, name = ("", *PurePosixPath(path).parts)
        by_name[name] = path
        by_folder[folder, name] = path
    records = []
    for split in SPLITS:
        paths = tree.find(f"{split}.csv")
        if len(paths) != 1:
            raise ValueError(
                f"Expected one {split}.csv in {tree.name}, got {len(paths)}. "
                "The three csv files of the split belong beside the images."
            )
        rows = csv.reader(io.StringIO(tree.read(paths[0]).decode("utf-8-sig")))
        header = [cell.strip() for cell in next(rows, [])]
        if header != ["filename", "label"]:
            raise ValueError(
                f"Expected the header 'filename,label' in line 1 of {paths[0]} in {tree.name}, "
                f"got {','.join(header)!r}."
            )
        for line, row in enumerate(rows, start=2):
            where = f"line {line} of {paths[0]}"
            if len(row) != 2:
                raise ValueError(f"Expected a file name and a label in {where}, got {row}.")
            name, label = row
            found = by_folder.get((label, name)) or by_name.get(name)
            if found is None:
                raise ValueError(
                    f"{name} of {where} is not among the images of {tree.name}. "
                    "Copy the missing images, or take the line out."
                )
            records.append(file_record(tree, found, label, split, where))
    return records


def _pickled(tree: Tree, pattern: str, read: Any) -> list[Record]:
    records = []
    for split in SPLITS:
        phase = "train_phase_train" if split == "train" and pattern is _CATEGORY else split
        paths = tree.find(pattern.format(phase))
        if len(paths) != 1:
            raise ValueError(f"Expected {pattern.format(phase)} in {tree.name}, got {len(paths)}.")
        where = f"{paths[0]} in {tree.name}"
        content = read_pickle(tree.read(paths[0]), where)
        try:
            pixels, rows = read(content)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{where} lacks what such a file has: {error}.") from error
        for class_name, members in rows.items():
            for row in members:
                load = partial(pixels.__getitem__, int(row))
                name = f"image {row} of {where}"
                records.append(Record(str(class_name), split, name, load, f"{row:08d}"))
    return records


def _from_cache(content: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """`image_data`, and the rows of each class in `class_dict`."""
    return content["image_data"], content["class_dict"]


def _from_category(content: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """`data` and `labels`, with class names where `catname2label` has them."""
    names = {label: name for name, label in content.get("catname2label", {}).items()}
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(content["labels"]):
        rows.setdefault(names.get(label, f"class{int(label):03d}"), []).append(row)
    return content["data"], rows
