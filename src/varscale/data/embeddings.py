"""Read embeddings of any model from npz, npy or safetensors files."""

from pathlib import Path
from typing import Any

import numpy as np

from varscale.data.split import SPLITS, check_names, split_classes

OPTIONS = ("split", "seed")
"""The `ReaderOptions` that apply to embeddings."""
SUFFIXES = (".npz", ".npy", ".safetensors")
_FEATURES = ("embeddings", "features", "X", "x", "data")
_LABELS = ("labels", "label", "y", "targets")


def read_embeddings(
    source: Path, split: str | None, seed: int
) -> tuple[np.ndarray, np.ndarray, list[tuple[str, str]]]:
    """Read features and labels; split the classes by a seed if the file has no split.

    Args:
        source: An npz or safetensors file with both, or an npy file of features with `labels.npy`
            beside it. Labels are numbers or (npz, npy) strings; an npz may have `class_names` and
            `class_split`.
        split: Shares of train/val/test classes, instead of a split in the file.
        seed: Seed of a split by shares.

    Returns:
        Items class by class, their labels, and name and split of each class, training classes
        first.
    """
    arrays = _arrays(source)
    items = _features(arrays, source)
    names, numbers = _classes(arrays, len(items), source)
    given = arrays.get("class_split")
    if given is not None and split is None:
        homes = _strings(given, "class_split", source)
        if len(homes) != len(names) or not set(homes) <= set(SPLITS):
            raise ValueError(
                f"Expected class_split in {source} to give train, val or test for each of "
                f"{len(names)} classes, got {len(homes)}: {sorted(set(homes))}."
            )
    else:
        homes = list(split_classes(names, split or "64/16/20", seed).values())
    order = sorted(set(numbers.tolist()), key=lambda c: (SPLITS.index(homes[c]), names[c]))
    rank = np.full(len(names), -1)
    rank[order] = np.arange(len(order))
    labels = rank[numbers]
    rows = np.argsort(labels, kind="stable")
    return items[rows], labels[rows], [(names[c], homes[c]) for c in order]


def read_items(
    source: Path, split: str | None = None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Read features, their class names if the file has labels, and their row numbers.

    Args:
        source: As for `read_embeddings`; labels may be missing.
        split: Read only classes of this split (`train`, `val` or `test`) of the file's
            `class_split`.
    """
    arrays = _arrays(source, labelled=False)
    items = _features(arrays, source)
    rows = np.arange(len(items))
    if not any(name in arrays for name in _LABELS):
        if split is not None:
            raise ValueError(f"Expected labels in {source} to choose {split} classes, got none.")
        return items, None, rows
    names, numbers = _classes(arrays, len(items), source)
    if split is not None:
        homes = arrays.get("class_split")
        if homes is None or homes.shape != (len(names),):
            raise ValueError(f"{source} has no splits of its {len(names)} classes (class_split).")
        rows = np.flatnonzero(np.array(_strings(homes, "class_split", source))[numbers] == split)
        if not len(rows):
            raise ValueError(f"{source} has no {split} classes.")
    return items[rows], np.array(names)[numbers[rows]], rows


def _features(arrays: dict[str, np.ndarray], source: Path) -> np.ndarray:
    """Features in float32; raise ValueError if they are not finite numbers."""
    items = _pick(arrays, _FEATURES, source)
    if items.ndim != 2 or not np.issubdtype(items.dtype, np.floating):
        raise ValueError(
            f"Expected features as floats of shape (item, dim) in {source}, got {items.dtype} of "
            f"shape {items.shape}."
        )
    if not items.size:
        raise ValueError(f"Expected features in {source}, got none: shape {items.shape}.")
    with np.errstate(over="ignore"):
        items = items.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(items).all(axis=1))
    if len(bad):
        raise ValueError(
            f"Expected finite features in {source}, got NaN or infinity in {len(bad)} rows, first "
            f"in row {bad[0]}. Embed them again, or remove them."
        )
    return items


def _classes(
    arrays: dict[str, np.ndarray], n_items: int, source: Path
) -> tuple[list[str], np.ndarray]:
    """Class names, and the index of each item's label among them."""
    labels, given = _pick(arrays, _LABELS, source), arrays.get("class_names")
    if labels.shape != (n_items,):
        raise ValueError(
            f"Expected one label for each of {n_items} features in {source}, got labels of "
            f"shape {labels.shape}."
        )
    if labels.dtype.kind not in "iuSU":
        raise ValueError(
            f"Expected whole numbers or strings as labels in {source}, got {labels.dtype}."
        )
    if given is not None:
        names = _strings(given, "class_names", source)
        if len(set(names)) != len(names):
            raise ValueError(f"Expected distinct class_names in {source}.")
        if not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(f"Expected whole numbers as labels beside class_names in {source}.")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
            raise ValueError(
                f"Expected labels in 0..{len(names) - 1} for the {len(names)} class_names of "
                f"{source}, got {labels.min()}..{labels.max()}."
            )
        return names, labels.astype(np.int64)
    values, numbers = np.unique(labels, return_inverse=True)
    return _strings(values, "labels", source), numbers.astype(np.int64)


def _strings(values: Any, what: str, source: Path) -> list[str]:
    if np.ndim(values) != 1:
        raise ValueError(f"Expected {what} as a list in {source}, got shape {np.shape(values)}.")
    try:
        found = values.tolist()
    except (ValueError, SystemError) as error:  # numbers that do not encode characters
        raise ValueError(f"Expected {what} of {source} as text, got {error}.") from error
    names = [v.decode(errors="surrogateescape") if isinstance(v, bytes) else str(v) for v in found]
    check_names(names, f"entry in the {what}", source)
    return names


def _arrays(source: Path, *, labelled: bool = True) -> dict[str, np.ndarray]:
    if not source.is_file():
        raise ValueError(f"Expected a file of embeddings at {source}, got none.")
    ending = source.suffix.lower()
    try:
        if ending == ".safetensors":
            from safetensors.numpy import load_file

            return dict(load_file(source))
        if ending == ".npy":
            arrays = {"features": np.load(source, allow_pickle=False)}
            beside = source.with_name("labels.npy")
            if beside.is_file():
                arrays["labels"] = np.load(beside, allow_pickle=False)
            elif labelled:
                raise ValueError(f"its labels are expected in {beside}")
            return arrays
        with np.load(source, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except Exception as error:
        raise ValueError(f"{source} cannot be read: {error}.") from error


def _pick(arrays: dict[str, np.ndarray], names: tuple[str, ...], source: Path) -> np.ndarray:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise ValueError(
        f"Expected an array called {' or '.join(names)} in {source}, got {', '.join(arrays)}."
    )
