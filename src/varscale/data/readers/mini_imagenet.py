"""miniImageNet, in six common layouts."""

import csv
import io
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from varscale.data.images import Record
from varscale.data.pickles import read_pickle
from varscale.data.readers.base import (
    READERS,
    Reader,
    ReaderOptions,
    array_record,
    check_images,
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

    Reads train.csv, val.csv and test.csv beside a flat folder of images or beside class folders;
    class folders under train, val and test; and two families of pickles.
    """

    def records(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        """List images, in whichever layout they are."""
        if tree.find(*(_CACHE.format(split) for split in SPLITS)):
            return _read_pickles(tree, _CACHE, _from_cache)
        if tree.find(_CATEGORY.format("train_phase_train")):
            return _read_pickles(tree, _CATEGORY, _from_category)
        if tree.find("train.csv"):
            return _read_csvs(tree)
        return split_folders(tree)


def _read_csvs(tree: Tree) -> list[Record]:
    """Images listed in csv files, found in the folder of their class or in a common folder."""
    rows = [row for split in SPLITS for row in _rows(tree, split)]
    labels = {label for _, label, _, _ in rows}
    by_folder: dict[tuple[str, str], str] = {}
    flat: dict[str, list[str]] = {}
    for path in image_paths(tree):
        *_, folder, name = ("", *PurePosixPath(path).parts)
        if folder in labels:
            by_folder[folder, name] = path
        else:
            flat.setdefault(name, []).append(path)
    records: list[Record] = []
    listed: dict[str, str] = {}
    for split, label, name, where in rows:
        found = [by_folder[label, name]] if (label, name) in by_folder else flat.get(name, [])
        if len(found) != 1:
            raise ValueError(
                f"{name} of {where} is {'not' if not found else 'more than once'} among the images "
                f"of {tree.name}. Copy the missing images, or remove the line."
            )
        if found[0] in listed:
            raise ValueError(f"{name} is listed twice, in {listed[found[0]]} and in {where}.")
        listed[found[0]] = where
        records.append(file_record(tree, found[0], label, split, where))
    return records


def _rows(tree: Tree, split: str) -> Iterator[tuple[str, str, str, str]]:
    """(split, label, file name, where) of each line of a csv file."""
    paths = tree.find(f"{split}.csv")
    if len(paths) != 1:
        raise ValueError(
            f"Expected one {split}.csv in {tree.name}, got {len(paths)}. "
            "The three csv files of the split belong beside the images."
        )
    try:
        reader = csv.reader(io.StringIO(tree.read(paths[0]).decode("utf-8-sig")))
        header = [cell.strip() for cell in next(reader, [])]
        if header != ["filename", "label"]:
            raise ValueError(
                f"Expected the header 'filename,label' in line 1 of {paths[0]} in {tree.name}, "
                f"got {','.join(header)!r}."
            )
        for row in reader:
            where = f"line {reader.line_num} of {paths[0]}"
            cells = [cell.strip() for cell in row]
            if len(cells) != 2 or not all(cells):
                if any(cells):
                    raise ValueError(f"Expected a file name and a label in {where}, got {row}.")
                continue
            yield split, cells[1], cells[0], where
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(
            f"Expected {paths[0]} in {tree.name} in UTF-8, got the byte {byte:#x} at "
            f"{error.start}. Save it again as UTF-8."
        ) from error
    except csv.Error as error:
        raise ValueError(f"{paths[0]} in {tree.name} is not a readable csv: {error}.") from error


def _read_pickles(tree: Tree, pattern: str, read: Any) -> list[Record]:
    records: list[Record] = []
    for split in SPLITS:
        phase = "train_phase_train" if split == "train" and pattern is _CATEGORY else split
        paths = tree.find(pattern.format(phase))
        if len(paths) != 1:
            raise ValueError(f"Expected {pattern.format(phase)} in {tree.name}, got {len(paths)}.")
        where = f"{paths[0]} in {tree.name}"
        content = read_pickle(tree.read(paths[0]), where)
        try:
            pixels, rows = read(content)
            listed = [(str(name), int(row)) for name, own in rows.items() for row in own]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{where} does not have the expected content: {error!r}.") from error
        check_images(pixels, listed, where)
        if sorted(row for _, row in listed) != list(range(len(pixels))):
            raise ValueError(f"Expected every image of {where} in one class.")
        records += [array_record(pixels, row, name, split, where) for name, row in listed]
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
