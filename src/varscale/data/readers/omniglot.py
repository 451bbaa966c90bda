"""Omniglot, from its official archives or as one npz file."""

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np

from varscale.core.registry import unknown
from varscale.data.images import Record
from varscale.data.readers.base import (
    READERS,
    Reader,
    ReaderOptions,
    array_record,
    check_images,
    file_record,
    image_paths,
)
from varscale.data.tree import Tree

_VAL = ("Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)")
_TEST = (
    "Kannada", "Keble", "Malayalam", "Manipuri", "Mongolian", "Old_Church_Slavonic_(Cyrillic)",
    "Oriya", "Sylheti", "Syriac_(Serto)", "Tengwar", "Tibetan", "ULOG",
)  # fmt: skip


@READERS.register("omniglot")
class Omniglot(Reader):
    """Omniglot: 1623 characters of 50 alphabets, 20 drawings each; ink is stored bright.

    Reads images_background and images_evaluation, as folders or as the two zips in a folder, and an
    npz file with `images`, `labels`, `class_names`. The split `vinyals` (the usual one) has
    1028 / 172 / 423 characters; `lake` trains on the background alphabets and tests on the others.
    """

    size = 28
    grey = True
    invert = True
    options = (*Reader.options, "split", "rotations")

    def records(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        """List all drawings, with their quarter turns if asked for."""
        split = options.split or "vinyals"
        if split not in ("vinyals", "lake"):
            raise unknown("split of omniglot", split, ("vinyals", "lake"))
        arrays = tree.find("images.npy")
        records = _from_arrays(tree, split) if arrays else _from_files(tree, split)
        if not options.rotations:
            return records
        return [
            replace(record, class_name=f"{record.class_name}/rot{90 * turn:03d}", turns=turn)
            for record in records
            for turn in range(4)
        ]


def _from_files(tree: Tree, split: str) -> list[Record]:
    records = []
    for path in image_paths(tree):
        found = re.search(r"images_(background|evaluation)/([^/]+)/(character\d+)/[^/]+$", path)
        if found:
            lake, alphabet, character = found.groups()
            name = f"{alphabet}/{character}"
            records.append(file_record(tree, path, name, _split(split, name, lake)))
    return records


def _from_arrays(tree: Tree, split: str) -> list[Record]:
    images, labels, names = (_array(tree, key) for key in ("images", "labels", "class_names"))
    check_images(images, labels, tree.name)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise ValueError(f"Expected labels in 0..{len(names) - 1} in {tree.name}.")
    lakes = _array(tree, "class_lake_set") if split == "lake" else [""] * len(names)
    homes = [_split(split, str(name), str(lake)) for name, lake in zip(names, lakes, strict=True)]
    return [
        array_record(images, row, str(names[label]), homes[label], tree.name)
        for row, label in enumerate(labels)
    ]


def _array(tree: Tree, key: str) -> Any:
    if f"{key}.npy" not in tree.files:
        raise ValueError(f"Expected an array {key!r} in {tree.name}, got {', '.join(tree.files)}.")
    content = tree.read(f"{key}.npy")
    try:
        return np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # a damaged header may raise anything
        raise ValueError(f"{key}.npy in {tree.name} cannot be read: {error}.") from error


def _split(split: str, name: str, lake: str) -> str:
    """Split of a character such as `Greek/character03`."""
    if split == "lake":
        return "train" if lake == "background" else "test"
    alphabet, _, character = name.partition("/character")
    if alphabet in _VAL:
        return "val"
    # One alphabet is divided: the published list ends in the middle of it.
    late = alphabet == "Gurmukhi" and int(character) >= 42
    return "test" if alphabet in _TEST or late else "train"
