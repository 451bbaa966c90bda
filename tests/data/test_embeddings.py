"""Embeddings in every file format, and wrong ones."""

import forms
import numpy as np
import pytest
from safetensors.numpy import save_file

from varscale.data import Dataset
from varscale.data.prepare import find_prepared, prepare
from varscale.data.readers import ReaderOptions
from varscale.data.store import list_prepared

FEATURES = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float16)
NUMBERS = np.repeat([7, 3, 5, 9], 3)


def npz(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("form", ["npz", "npy", "safetensors", "words"])
def test_embeddings_in_every_form(form, tmp_path, root):
    if form == "npz":
        source = npz(tmp_path / "e.npz", X=FEATURES, y=NUMBERS)
    elif form == "words":
        source = npz(tmp_path / "e.npz", features=FEATURES, labels=NUMBERS.astype("U2"))
    elif form == "npy":
        np.save(tmp_path / "features.npy", FEATURES)
        np.save(tmp_path / "labels.npy", NUMBERS)
        source = tmp_path / "features.npy"
    else:
        source = tmp_path / "e.safetensors"
        save_file({"embeddings": FEATURES, "labels": NUMBERS}, source)
    manifest = prepare("mine", source, ReaderOptions(split="2/1/1"), root=root)
    assert manifest.kind == "embeddings"
    assert forms.split_sizes(manifest) == [2, 1, 1]
    assert sorted(manifest.class_names) == ["3", "5", "7", "9"]
    dataset = Dataset.open("mine", root)
    for label, name in enumerate(dataset.class_names):
        expected = FEATURES[int(name) == NUMBERS].astype(np.float32)
        assert np.array_equal(dataset.items[dataset.labels == label], expected)


def test_embeddings_with_names_and_split(tmp_path, root):
    arrays = {
        "embeddings": FEATURES,
        "labels": np.repeat([0, 1, 2, 3], 3),
        "class_names": ["d", "c", "b", "a"],
        "class_split": ["test", "train", "val", "train"],
    }
    manifest = prepare("given", npz(tmp_path / "e.npz", **arrays), root=root)
    assert manifest.class_names == ["a", "c", "b", "d"]
    assert manifest.class_split == ["train", "train", "val", "test"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": FEATURES}, "called labels or label or y"),
        ({"Z": FEATURES, "y": NUMBERS}, "called embeddings or features"),
        ({"X": FEATURES, "y": NUMBERS[:5]}, r"each of 12 features.*shape \(5,\)"),
        ({"X": FEATURES.astype(int), "y": NUMBERS}, r"floats of shape \(item, dim\)"),
        (
            {"X": np.where(np.eye(12, 5), np.nan, 1.0), "y": NUMBERS},
            "infinity in 5 rows, first in row 0",
        ),
        ({"X": FEATURES, "y": NUMBERS, "class_names": ["a"]}, r"in 0..0 for the 1 class_names"),
        (
            {"X": FEATURES, "y": NUMBERS, "class_split": ["train"] * 3},
            "for each of 4 classes, got 3",
        ),
    ],
)
def test_wrong_embeddings_are_refused(arrays, message, tmp_path, root):
    with pytest.raises(ValueError, match=message):
        prepare("bad", npz(tmp_path / "e.npz", **arrays), root=root)
    assert list_prepared(root) == []


def test_labels_beside_features_are_looked_at_again(tmp_path, root):
    np.save(tmp_path / "features.npy", FEATURES)
    np.save(tmp_path / "labels.npy", NUMBERS)
    prepare("mine", tmp_path / "features.npy", root=root)
    assert find_prepared("mine", tmp_path / "features.npy", ReaderOptions(), root=root)
    np.save(tmp_path / "labels.npy", NUMBERS[::-1].copy())
    assert not find_prepared("mine", tmp_path / "features.npy", ReaderOptions(), root=root)
