"""Prepared datasets on disk: damage is found, other files are never overwritten."""

import forms
import pytest

from varscale.data import Dataset
from varscale.data.prepare import prepare
from varscale.data.readers import ReaderOptions
from varscale.data.store import check


def test_one_flipped_byte_is_found(tmp_path, root):
    prepare(
        "mini", forms.csv_zip(tmp_path / "s"), ReaderOptions(size=8), form="miniimagenet", root=root
    )
    assert check(root, "mini").name == "mini"
    path = root / "mini" / "items.npy"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"items.npy is damaged.*Prepare the dataset again"):
        check(root, "mini")
    with pytest.raises(ValueError, match="damaged"):  # its time of change gave it away
        Dataset.open("mini", root)


@pytest.mark.parametrize("harm", ["name", "garbage", "missing"])
def test_a_harmed_manifest_is_found(harm, tmp_path, root):
    prepare(
        "mini", forms.csv_zip(tmp_path / "s"), ReaderOptions(size=8), form="miniimagenet", root=root
    )
    path = root / "mini" / "manifest.json"
    if harm == "missing":
        path.unlink()
    else:
        text = path.read_text()
        path.write_text(text.replace('"n03"', '"n33"') if harm == "name" else text[:-40])
    with pytest.raises(ValueError, match=r"damaged|no prepared dataset"):
        Dataset.open("mini", root)


def test_a_folder_that_is_no_dataset_is_never_replaced(tmp_path, root):
    forms.write(root / "mine" / "thesis.txt", b"years of work")
    source = forms.split_class_folders(tmp_path / "s")
    with pytest.raises(ValueError, match="is not a prepared dataset, so it is not overwritten"):
        prepare("mine", source, root=root)
    assert (root / "mine" / "thesis.txt").read_bytes() == b"years of work"
    own = forms.split_class_folders(root / "own")
    with pytest.raises(ValueError, match="is where the dataset would be"):
        prepare("own", own, root=root)
    with pytest.raises(ValueError, match="is where the dataset would be"):
        prepare("own", own / "train", root=root)


def test_what_a_kill_between_two_renames_left_is_put_back(tmp_path, root):
    source = forms.csv_zip(tmp_path / "s")
    first = prepare("miniimagenet", source, ReaderOptions(size=8), root=root)
    (root / "miniimagenet").rename(root / ".miniimagenet.old")
    with pytest.raises(ValueError, match="got nothing there"):
        prepare("miniimagenet", tmp_path / "nowhere", root=root)
    assert check(root, "miniimagenet").hash == first.hash
