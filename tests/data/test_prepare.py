"""Every form of every dataset, and everything that can be wrong with one."""

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import forms
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from varscale import functional as vf
from varscale.data import EpisodeSampler
from varscale.data.dataset import Dataset
from varscale.data.pickles import read_pickle
from varscale.data.prepare import already_prepared, prepare
from varscale.data.readers import Options
from varscale.data.split import seeded_split
from varscale.data.store import check, list_prepared


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def split_sizes(manifest):
    return [Counter(manifest.class_split)[s] for s in ("train", "val", "test")]


MINI = [
    forms.csv_flat,
    forms.csv_class_folders,
    forms.csv_zip,
    forms.split_class_folders,
    forms.cache_pickles,
    forms.category_pickles,
]


@pytest.mark.parametrize("form", MINI, ids=lambda f: f.__name__)
def test_miniimagenet_in_every_form(form, tmp_path, root):
    manifest = prepare("miniimagenet", form(tmp_path / "source"), Options(size=8), root=root)
    assert split_sizes(manifest) == [3, 2, 2]
    assert manifest.class_names == ["n01", "n02", "n03", "n04", "n05", "n06", "n07"]
    assert manifest.class_counts == [forms.PER_CLASS] * 7
    dataset = Dataset.open("miniimagenet", root)
    # The picture with number k has k as its red: the right image under the right label, in order.
    assert dataset.items[:, 4, 4, 0].tolist() == list(range(1, 29))
    assert dataset.items.shape == (28, 8, 8, 3)
    default = prepare("other", form(tmp_path / "again"), form="miniimagenet", root=root)
    assert default.shape == [28, 84, 84, 3]


def test_the_same_content_has_the_same_hash_however_it_was_packed(tmp_path, root):
    options = Options(size=8)
    hashes = {
        prepare(
            "mini", form(tmp_path / form.__name__), options, form="miniimagenet", root=root
        ).hash
        for form in MINI[:4]
    }
    assert len(hashes) == 1


@pytest.mark.parametrize(
    "form", [forms.omniglot_tree, forms.omniglot_zips], ids=lambda f: f.__name__
)
def test_omniglot_archives(form, tmp_path, root):
    source = form(tmp_path / "source")
    manifest = prepare("omniglot", source, root=root)
    homes = dict(zip(manifest.class_names, manifest.class_split, strict=True))
    assert homes["Greek/character01"] == "train"
    assert homes["Armenian/character01"] == homes["Hebrew/character01"] == "val"
    assert homes["Keble/character02"] == homes["Gurmukhi/character42"] == "test"
    assert homes["Gurmukhi/character41"] == "train"
    items = Dataset.open("omniglot", root).items
    assert items.shape[1:] == (28, 28, 1)
    assert items[0, 0, 0, 0] == 0  # paper is black
    assert items[0, 14, 6, 0] > 200  # ink is bright
    lake = prepare("omniglot", source, Options(split="lake"), root=root)
    assert split_sizes(lake) == [46, 0, 3]
    turned = prepare("omniglot", source, Options(rotations=True), root=root)
    assert len(turned.class_names) == 4 * len(homes)
    index = turned.class_names.index("Greek/character01/rot090")
    assert turned.class_split[index] == "train"
    dataset = Dataset.open("omniglot", root)
    upright = turned.class_names.index("Greek/character01/rot000")
    first = [dataset.items[dataset.labels == c][0] for c in (upright, index)]
    assert np.array_equal(first[1], np.rot90(first[0]))


def test_cub(tmp_path, root):
    manifest = prepare("cub", forms.cub(tmp_path / "source"), root=root)
    homes = dict(zip(manifest.class_names, manifest.class_split, strict=True))
    assert [homes[f"{c:03d}.Bird_{c}"] for c in range(1, 9)] == 2 * [
        "train",
        "val",
        "train",
        "test",
    ]


def test_tieredimagenet(tmp_path, root):
    source = forms.split_class_folders(tmp_path / "source")
    assert split_sizes(prepare("tieredimagenet", source, Options(size=8), root=root)) == [3, 2, 2]


@pytest.mark.parametrize(("name", "sizes"), [("cifar-fs", [98, 1, 1]), ("fc100", [60, 20, 20])])
def test_cifar_100(name, sizes, tmp_path, root):
    manifest = prepare(name, forms.cifar(tmp_path / "source"), root=root)
    assert split_sizes(manifest) == sizes  # only three of the small file's classes have real names
    assert manifest.shape == [400, 32, 32, 3]
    homes = dict(zip(manifest.class_names, manifest.class_split, strict=True))
    if name == "cifar-fs":
        assert (homes["beaver"], homes["whale"], homes["apple"]) == ("val", "test", "train")
    dataset = Dataset.open(name, root)
    label = dataset.class_names.index("class77")
    assert set(dataset.items[dataset.labels == label][:, 0, 0, 0]) == {77}


def test_any_folder_of_class_folders(tmp_path, root):
    source = tmp_path / "mine"
    for c in range(10):
        for i in range(2 + c):
            forms.write(source / f"class{c}" / f"{i}.png", forms.encoded(forms.picture(c)))
    manifest = prepare("mine", source, Options(size=12, split="6/2/2"), root=root)
    assert split_sizes(manifest) == [6, 2, 2]
    counts = dict(zip(manifest.class_names, manifest.class_counts, strict=True))
    assert counts == {f"class{c}": 2 + c for c in range(10)}
    again = prepare("again", source, Options(size=12, split="6/2/2"), root=root)
    assert again.hash == manifest.hash
    other = prepare("other", source, Options(size=12, split="6/2/2", seed=1), root=root)
    assert other.hash != manifest.hash
    given = prepare("given", forms.split_class_folders(tmp_path / "split"), root=root)
    assert split_sizes(given) == [3, 2, 2]


def test_every_kind_of_image(tmp_path, root):
    source = tmp_path / "kinds"
    half = Image.new("RGB", (40, 20), "red")
    half.paste("blue", (20, 0, 40, 20))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    deep = Image.fromarray(np.full((10, 10), 40_000, dtype=np.uint16))
    kinds = {
        "grey": forms.encoded(Image.new("L", (10, 10), 99)),
        "palette": forms.encoded(Image.new("RGB", (10, 10), (10, 200, 30)).quantize(2)),
        "clear": forms.encoded(Image.new("RGBA", (10, 10), (0, 0, 0, 0))),
        "deep": forms.encoded(deep),
        "turned": forms.encoded(half, "JPEG", exif=exif, quality=95),
        "one bit": forms.encoded(Image.new("1", (10, 10), 1)),
    }
    for name, content in kinds.items():
        forms.write(source / name / "a.png", content)
    prepare("kinds", source, Options(size=10, split="1/0/0"), root=root)
    dataset = Dataset.open("kinds", root)
    middle = {name: dataset.items[i, 5] for i, name in enumerate(dataset.class_names)}
    assert middle["grey"][5].tolist() == [99, 99, 99]
    assert middle["palette"][5].tolist() == pytest.approx([10, 200, 30], abs=30)
    assert middle["clear"][5].tolist() == [255, 255, 255]
    assert middle["deep"][5].tolist() == [156, 156, 156]  # 40,000 of 65,535
    assert middle["one bit"][5].tolist() == [255, 255, 255]
    assert middle["turned"][1][2] > 200  # blue came to the left
    assert middle["turned"][8][0] > 200


def test_the_centre_square_is_kept(tmp_path, root):
    wide = Image.new("RGB", (300, 100), "black")
    wide.paste("white", (100, 0, 200, 100))
    for name in ("a", "b"):
        forms.write(tmp_path / "wide" / name / "x.png", forms.encoded(wide))
    prepare("wide", tmp_path / "wide", Options(size=50, grey=True), root=root)
    assert (Dataset.open("wide", root).items == 255).all()


# --- embeddings ---------------------------------------------------------------------------------

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
    manifest = prepare("mine", source, Options(split="2/1/1"), root=root)
    assert manifest.kind == "embeddings"
    assert split_sizes(manifest) == [2, 1, 1]
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
            "infinity in 5 rows, the first being row 0",
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


# --- opening, episodes, checks --------------------------------------------------------------------


def test_episodes_from_a_prepared_dataset(tmp_path, root):
    prepare("mini", forms.csv_zip(tmp_path / "s"), Options(size=8), form="miniimagenet", root=root)
    split = Dataset.open("mini", root)["train"]
    assert len(split) == 12
    sampler = EpisodeSampler(split.labels, n_way=3, n_shot=1, n_query=3)
    episode = split.episode(sampler.batch(0, 5))
    assert episode.support.shape == (5, 3, 3, 8, 8)
    assert episode.support.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    reds = (255 * episode.query[:, :, 0, 0, 0]).round().long()
    classes = sampler.batch(0, 5).classes
    expected = torch.gather(classes, 1, episode.query_labels)
    assert torch.equal((reds - 1) // forms.PER_CLASS, expected)


def test_splits_that_are_not_there(tmp_path, root):
    for name in ("a", "b"):
        forms.write(tmp_path / "two" / name / "x.png", forms.encoded(forms.picture(1)))
    prepare("two", tmp_path / "two", Options(split="1/0/0", size=8), root=root)
    dataset = Dataset.open("two", root)
    with pytest.raises(ValueError, match="has no val classes"):
        dataset["val"]
    with pytest.raises(ValueError, match="Unknown split 'tset'.*Did you mean 'test'"):
        dataset["tset"]


def test_one_flipped_byte_is_found(tmp_path, root):
    prepare("mini", forms.csv_zip(tmp_path / "s"), Options(size=8), form="miniimagenet", root=root)
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
    prepare("mini", forms.csv_zip(tmp_path / "s"), Options(size=8), form="miniimagenet", root=root)
    path = root / "mini" / "manifest.json"
    if harm == "missing":
        path.unlink()
    else:
        text = path.read_text()
        path.write_text(text.replace('"n03"', '"n33"') if harm == "name" else text[:-40])
    with pytest.raises(ValueError, match=r"damaged|no prepared dataset"):
        Dataset.open("mini", root)


def test_unknown_datasets_name_the_known(tmp_path, root):
    with pytest.raises(ValueError, match="Prepare it: varscale data prepare mini SOURCE"):
        Dataset.open("mini", root)
    prepare("mini", forms.csv_zip(tmp_path / "s"), Options(size=8), form="miniimagenet", root=root)
    with pytest.raises(ValueError, match="Did you mean 'mini'"):
        Dataset.open("minni", root)


def test_what_was_prepared_already_is_known(tmp_path, root):
    source = forms.csv_zip(tmp_path / "s")
    assert already_prepared("miniimagenet", source, Options(size=8), root=root) is None
    first = prepare("miniimagenet", source, Options(size=8), root=root)
    there = already_prepared("miniimagenet", source, Options(size=8), root=root)
    assert there.hash == first.hash
    assert already_prepared("miniimagenet", source, Options(size=9), root=root) is None
    os.utime(source)  # touched: it may have changed
    assert already_prepared("miniimagenet", source, Options(size=8), root=root) is None
    assert prepare("miniimagenet", source, Options(size=8), root=root).hash == first.hash


# --- what is wrong with a source ------------------------------------------------------------------


def broken(tmp_path, harm):
    """A csv form with one thing wrong."""
    root = forms.csv_flat(tmp_path / "broken")
    images = sorted((root / "images").iterdir())
    if harm == "missing":
        images[5].unlink()
    elif harm == "truncated":
        images[5].write_bytes(forms.encoded(forms.picture(1, (200, 200)), "JPEG")[:500])
    elif harm == "header":
        (root / "val.csv").write_text("file;class\n")
    elif harm == "row":
        (root / "val.csv").write_text("filename,label\nonly-a-name\n")
    elif harm == "twice":
        (root / "test.csv").write_text(forms.csv_lines("train"))
    elif harm == "no test":
        (root / "test.csv").unlink()
    return root


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("missing", r"n0200000001.png of line 7 of train.csv is not among the images"),
        ("truncated", r"n0200000001.png in .*\(line 7 of train.csv\) cannot be read"),
        ("header", r"'filename,label' in line 1 of val.csv .* got 'file;class'"),
        ("row", r"a file name and a label in line 2 of val.csv"),
        ("twice", r"n0100000000.png is listed twice, in line 2 of train.csv and in line 2 of test"),
        ("no test", r"one test.csv in .*, got 0"),
    ],
)
def test_broken_sources_are_named_and_leave_what_was_there(harm, message, tmp_path, root):
    good = prepare("miniimagenet", forms.csv_zip(tmp_path / "s"), Options(size=8), root=root)
    with pytest.raises(ValueError, match=message):
        prepare("miniimagenet", broken(tmp_path, harm), Options(size=8), root=root)
    assert check(root, "miniimagenet").hash == good.hash
    assert [p.name for p in root.iterdir() if p.name != ".miniimagenet.lock"] == ["miniimagenet"]


def test_skip_bad_lists_what_was_left_out(tmp_path, root):
    source = broken(tmp_path, "truncated")
    manifest = prepare("miniimagenet", source, Options(size=8, skip_bad=True), root=root)
    assert len(manifest.skipped) == 1
    assert "n0200000001.png" in manifest.skipped[0]
    assert manifest.class_counts == [4, 3, 4, 4, 4, 4, 4]
    dataset = Dataset.open("miniimagenet", root)
    assert dataset.items[:, 0, 0, 0].tolist() == [i for i in range(1, 29) if i != 6]
    for path in (source / "images").iterdir():
        path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="None of the 28 images"):
        prepare("miniimagenet", source, Options(size=8, skip_bad=True), root=root)


def test_empty_and_wrong_sources(tmp_path, root):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="Expected images in .*, got none"):
        prepare("mine", tmp_path / "empty", root=root)
    with pytest.raises(ValueError, match="got nothing there"):
        prepare("mine", tmp_path / "nowhere", root=root)
    forms.write(tmp_path / "loose" / "a.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="lie in none, such as a.png"):
        prepare("mine", tmp_path / "loose", root=root)
    forms.write(tmp_path / "x.zip", b"no zip")
    with pytest.raises(ValueError, match="no readable zip"):
        prepare("mine", tmp_path / "x.zip", root=root)
    forms.write(tmp_path / "x.tar.gz", b"no tar")
    with pytest.raises(ValueError, match="no readable tar"):
        prepare("cifar-fs", tmp_path / "x.tar.gz", root=root)
    forms.write(tmp_path / "x.txt", b"text")
    with pytest.raises(ValueError, match=r"a folder, a .zip or a .tar.gz, got"):
        prepare("cub", tmp_path / "x.txt", root=root)
    with pytest.raises(ValueError, match="image size from 1 to 1024, got 0"):
        prepare("mine", tmp_path / "loose", Options(size=0), root=root)
    for name in ("", ".hidden", "a/b"):
        with pytest.raises(ValueError, match="name of letters, digits"):
            prepare(name, tmp_path / "empty", root=root)


@pytest.mark.parametrize("shares", ["64/16", "a/b/c", "-1/1/1", "0/0/0"])
def test_wrong_shares_are_refused(shares):
    with pytest.raises(ValueError, match="such as 64/16/20"):
        seeded_split(["a"], shares, 0)


class Evil:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def test_a_hostile_pickle_is_refused_and_never_runs(tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = forms.cache_pickles(tmp_path / "s")
    content = {"image_data": Evil(), "class_dict": {}}
    forms.write(source / "mini-imagenet-cache-val.pkl", pickle.dumps(content))
    with pytest.raises(ValueError, match=r"was not loaded: asks for (posix|nt).system"):
        prepare("miniimagenet", source, root=root)
    assert not (tmp_path / "pwned").exists()
    forms.write(source / "mini-imagenet-cache-val.pkl", b"\x80\x04garbage")
    with pytest.raises(ValueError, match="was not loaded"):
        prepare("miniimagenet", source, root=root)
    forms.write(source / "mini-imagenet-cache-val.pkl", pickle.dumps({"other": 1}))
    with pytest.raises(ValueError, match="lacks what such a file has"):
        prepare("miniimagenet", source, root=root)


def hostile_dtype():
    """A dtype of objects that says it has none: its bytes would be taken for pointers."""
    dtype = b"cnumpy\ndtype\n(S'O8'\nI00\nI01\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntb"
    return b"cnumpy\nndarray\n((I1\nt" + dtype + b"S'AAAAAAAA'\ntR."


@pytest.mark.parametrize(
    "content",
    [
        hostile_dtype(),
        pickle.dumps(np.array([Evil()], dtype=object)),
        pickle.dumps(np.zeros(3, dtype=[("a", "i4")])),
        b"c_codecs\nencode\n(S'x'\nS'punycode'\ntR.",
        b"c__builtin__\nbytes\n(I1000000000000\ntR.",
        b"\x80\x04\x8e\x00\x00\x00\x00\x00\x01\x00\x00.",
    ],
)
def test_the_unpickler_has_no_back_door(content):
    with pytest.raises(ValueError, match="here was not loaded"):
        read_pickle(content, "here")


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_honest_pickles_are_read(protocol):
    content = {
        "a": np.arange(6, dtype=">i2").reshape(2, 3),
        "b": [np.asfortranarray(np.eye(3)), np.float32(0.5), "text", b"", b"bytes"],
        "c": np.array(["x", "yy"]),
    }
    read = read_pickle(pickle.dumps(content, protocol=protocol), "here")
    assert np.array_equal(read["a"], content["a"])
    assert np.array_equal(read["b"][0], np.eye(3))
    assert read["b"][1:] == content["b"][1:]
    assert read["c"].tolist() == ["x", "yy"]


@pytest.mark.parametrize(
    "member", ["../evil.png", "/etc/evil.png", "a/../../evil.png", "C:/evil.png"]
)
def test_archives_that_lead_out_of_themselves_are_refused(member, tmp_path, root):
    with zipfile.ZipFile(tmp_path / "slip.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(member), forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="leads out of it"):
        prepare("mine", tmp_path / "slip.zip", root=root)


def bomb(side):
    """A PNG of a few hundred bytes that says it has side x side pixels."""
    small = bytearray(forms.encoded(Image.new("L", (8, 8))))
    small[16:24] = side.to_bytes(4, "big") * 2
    small[29:33] = zlib.crc32(bytes(small[12:29])).to_bytes(4, "big")
    return bytes(small)


@pytest.mark.parametrize("side", [8_000, 60_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_decompression_bombs_are_refused(side, tmp_path, root):
    forms.write(tmp_path / "bomb" / "class" / "a.png", bomb(side))
    forms.write(tmp_path / "bomb" / "z" / "0.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match=r"a.png in .* cannot be read: .*pixels"):
        prepare("mine", tmp_path / "bomb", root=root)


def test_archives_that_unpack_to_too_much_are_refused(tmp_path, root, monkeypatch):
    monkeypatch.setattr("varscale.data.tree.MAX_FILE", 100)
    with pytest.raises(ValueError, match="at most 100 bytes in a file, got"):
        prepare("miniimagenet", forms.csv_zip(tmp_path / "s"), root=root)


def test_a_full_disk_is_said_in_words(tmp_path, root, monkeypatch):
    source = forms.csv_zip(tmp_path / "s")
    good = prepare("miniimagenet", source, Options(size=8), root=root)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ValueError, match="No space left .* untouched"):
        prepare("miniimagenet", source, Options(size=16), root=root)
    assert check(root, "miniimagenet").hash == good.hash


def test_a_wrong_dtype_of_pixels(tmp_path, root):
    source = forms.cache_pickles(tmp_path / "s")
    content = {"image_data": np.zeros((4, 8, 8, 3)), "class_dict": {"n04": [0, 1], "n05": [2, 3]}}
    forms.write(source / "mini-imagenet-cache-val.pkl", pickle.dumps(content))
    with pytest.raises(ValueError, match="images as a uint8 array in .*, got float64"):
        prepare("miniimagenet", source, root=root)


# --- nothing silently wrong -----------------------------------------------------------------------


def test_a_class_in_two_splits_is_refused(tmp_path, root):
    source = forms.split_class_folders(tmp_path / "s")
    forms.write(source / "test" / "n01" / "new.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="every class in one split, got 'n01' in test and in tr"):
        prepare("mine", source, root=root)


def test_an_image_of_another_class_is_no_substitute(tmp_path, root):
    source = forms.csv_class_folders(tmp_path / "s")
    (source / "n01" / "n0100000000.png").unlink()
    forms.write(source / "n02" / "n0100000000.png", forms.encoded(forms.picture(99)))
    with pytest.raises(ValueError, match="n0100000000.png of line 2 of train.csv is not among"):
        prepare("miniimagenet", source, root=root)


def test_a_line_that_comes_twice_is_refused(tmp_path, root):
    source = forms.csv_flat(tmp_path / "s")
    lines = (source / "train.csv").read_text()
    (source / "train.csv").write_text(lines + "\n" + lines.splitlines()[1] + "\n")
    with pytest.raises(ValueError, match="listed twice, in line 2 of train.csv and in line 15"):
        prepare("miniimagenet", source, root=root)


def test_the_csv_form_is_known_under_any_name(tmp_path, root):
    manifest = prepare("mini", forms.csv_flat(tmp_path / "s"), Options(size=8), root=root)
    assert split_sizes(manifest) == [3, 2, 2]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["train/steam/0.png", "car/0.png"], "got car/0.png outside"),
        (["train/a/0.png", "train/1.png"], "got train/1.png outside"),
        (["a/train/0.png", "a/test/0.png"], "a split goes above the classes"),
    ],
)
def test_folders_that_are_split_in_part_are_refused(paths, message, tmp_path, root):
    for path in paths:
        forms.write(tmp_path / "s" / path, forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match=message):
        prepare("mine", tmp_path / "s", root=root)


def test_links_are_followed_and_loops_are_not(tmp_path, root):
    forms.write(tmp_path / "elsewhere" / "0.png", forms.encoded(forms.picture(1)))
    forms.write(tmp_path / "s" / "dogs" / "0.png", forms.encoded(forms.picture(2)))
    (tmp_path / "s" / "cats").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "s" / "again").symlink_to(tmp_path / "s")
    (tmp_path / "s" / "nowhere").symlink_to(tmp_path / "missing")
    manifest = prepare("mine", tmp_path / "s", Options(split="1/0/0"), root=root)
    assert sorted(manifest.class_names) == ["cats", "dogs"]


def test_archives_with_a_file_twice_are_refused(tmp_path, root):
    (tmp_path / "s").mkdir()
    for name in ("one", "two"):
        with zipfile.ZipFile(tmp_path / "s" / f"{name}.zip", "w") as archive:
            archive.writestr("a/0.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="every file once .* got a/0.png twice"):
        prepare("mine", tmp_path / "s", root=root)


def test_a_folder_that_is_no_dataset_is_never_replaced(tmp_path, root):
    forms.write(root / "mine" / "thesis.txt", b"years of work")
    source = forms.split_class_folders(tmp_path / "s")
    with pytest.raises(ValueError, match="is no prepared dataset, so it is not replaced"):
        prepare("mine", source, root=root)
    assert (root / "mine" / "thesis.txt").read_bytes() == b"years of work"
    own = forms.split_class_folders(root / "own")
    with pytest.raises(ValueError, match="lies in the place of the dataset"):
        prepare("own", own, root=root)
    with pytest.raises(ValueError, match="lies in the place of the dataset"):
        prepare("own", own / "train", root=root)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mine", Options(rotations=True), "'rotations' means nothing to the format 'folder'"),
        ("mine", Options(split="1/1/1"), "has its split in folders"),
        ("miniimagenet", Options(split="1/1/1"), "'split' means nothing"),
        ("omniglot", Options(split="lakes"), "Did you mean 'lake'"),
    ],
)
def test_options_that_mean_nothing_are_refused(name, options, message, tmp_path, root):
    with pytest.raises(ValueError, match=message):
        prepare(name, forms.split_class_folders(tmp_path / "s"), options, root=root)


def test_labels_beside_features_are_looked_at_again(tmp_path, root):
    np.save(tmp_path / "features.npy", FEATURES)
    np.save(tmp_path / "labels.npy", NUMBERS)
    prepare("mine", tmp_path / "features.npy", root=root)
    assert already_prepared("mine", tmp_path / "features.npy", Options(), root=root)
    np.save(tmp_path / "labels.npy", NUMBERS[::-1].copy())
    assert not already_prepared("mine", tmp_path / "features.npy", Options(), root=root)


def test_a_split_by_seed_depends_on_names_alone():
    names = [f"class{i}" for i in range(20)]
    split = seeded_split(names, "10/5/5", 3)
    assert seeded_split(names[::-1], "10/5/5", 3) == split
    assert Counter(split.values()) == {"train": 10, "val": 5, "test": 5}
    assert seeded_split(names, "10/5/5", 4) != split


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Image.fromarray(np.full((4, 4), 7.0, dtype=np.float32)), "outside 0..1"),
        (Image.fromarray(np.full((4, 4), 70_000, dtype=np.int32)), "outside 0..65535"),
    ],
)
def test_values_without_a_known_range_are_refused(image, message, tmp_path, root):
    forms.write(tmp_path / "s" / "a" / "0.tif", forms.encoded(image, "TIFF"))
    forms.write(tmp_path / "s" / "z" / "0.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match=message):
        prepare("mine", tmp_path / "s", root=root)


def test_a_name_does_not_make_an_image(tmp_path, root):
    forms.write(tmp_path / "s" / "a" / "0.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n")
    forms.write(tmp_path / "s" / "z" / "0.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="0.jpg in .* it is none of JPEG"):
        prepare("mine", tmp_path / "s", root=root)


# --- interruption ---------------------------------------------------------------------------------

KILLED = """
import sys
from pathlib import Path
from varscale.data.prepare import prepare
from varscale.data.readers import Options
prepare("mine", Path(sys.argv[1]), Options(size=32), root=Path(sys.argv[2]))
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_anywhere_and_run_again_it_ends_the_same(tmp_path, root):
    source = tmp_path / "many"
    noise = np.random.default_rng(0)
    for c in range(20):
        for i in range(25):
            pixels = noise.integers(0, 255, (120, 120, 3), dtype=np.uint8)
            content = forms.encoded(Image.fromarray(pixels), "JPEG")
            forms.write(source / f"class{c:02d}" / f"{i:03d}.jpg", content)
    whole = prepare("mine", source, Options(size=32), root=tmp_path / "whole").hash
    command = [sys.executable, "-c", KILLED, str(source), str(root)]
    start = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    duration = time.monotonic() - start
    for moment in np.random.default_rng(1).uniform(0.3, 1.0, 6):
        shutil.rmtree(root / "mine")
        job = subprocess.Popen(command, stdout=subprocess.PIPE)
        time.sleep(moment * duration)
        job.send_signal(signal.SIGKILL)
        job.communicate()
        assert set(list_prepared(root)) <= {"mine"}
        subprocess.run(command, check=True, capture_output=True)
        assert check(root, "mine").hash == whole


def test_two_at_once_agree(tmp_path, root):
    source = forms.csv_class_folders(tmp_path / "s")
    for split in forms.CLASSES:
        (source / f"{split}.csv").unlink()
    command = [sys.executable, "-c", KILLED, str(source), str(root)]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [job.communicate()[0].strip() for job in jobs] == ["done", "done"]
    assert check(root, "mine").shape == [28, 32, 32, 3]


def test_what_a_kill_between_two_renames_left_is_put_back(tmp_path, root):
    source = forms.csv_zip(tmp_path / "s")
    first = prepare("miniimagenet", source, Options(size=8), root=root)
    (root / "miniimagenet").rename(root / ".miniimagenet.old")
    with pytest.raises(ValueError, match="got nothing there"):
        prepare("miniimagenet", tmp_path / "nowhere", root=root)
    assert check(root, "miniimagenet").hash == first.hash


# --- the embedded data, and the real data ---------------------------------------------------------


@pytest.fixture(scope="module")
def glyphs():
    return Dataset.open("glyphs")


def nearest_pixel(split, episodes=400):
    sampler = EpisodeSampler(split.labels, n_way=5, n_shot=1, n_query=5)
    episode = split.episode(sampler.batch(0, episodes))
    centres = vf.prototypes(episode.support.flatten(2), episode.support_labels, 5)
    answer = vf.euclidean_logits(episode.query.flatten(2), centres).argmax(-1)
    return (answer == episode.query_labels).float().mean().item()


def test_glyphs(glyphs):
    assert len(glyphs.class_names) >= 300
    assert np.bincount(glyphs.labels).tolist() == [20] * len(glyphs.class_names)
    assert glyphs.items.shape[1:] == (28, 28, 1)
    scripts = {
        split: {n.split()[0] for n, s in zip(glyphs.class_names, glyphs.class_split) if s == split}  # noqa: B905
        for split in ("train", "val", "test")
    }
    assert not scripts["train"] & scripts["test"]
    assert not scripts["train"] & scripts["val"]
    assert not scripts["val"] & scripts["test"]
    for split in scripts:
        assert 0.22 < nearest_pixel(glyphs[split]) < 0.6  # chance is 0.2
    assert glyphs.items.max(axis=(1, 2, 3)).min() > 100  # something is drawn everywhere


def real(name):
    folder = os.environ.get("VARSCALE_DATA")
    if not folder:
        pytest.skip("VARSCALE_DATA does not say where the real data is")
    return Path(folder) / name


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "options", "items", "sizes"),
    [
        ("miniimagenet", "miniimagenet_84x84.zip", Options(size=8), 28_000, [64, 16, 20]),
        ("omniglot", "omniglot_28x28.npz", Options(), 32_460, [1028, 172, 423]),
        ("omniglot", "omniglot_28x28.npz", Options(split="lake"), 32_460, [964, 0, 659]),
        ("clinc150", "clinc150_minilm.npz", Options(), 22_500, [50, 50, 50]),
        ("banking77", "banking77_minilm.npz", Options(), 13_083, [25, 25, 27]),
    ],
)
def test_real_data(name, file, options, items, sizes, root):
    manifest = prepare(name, real(file), options, root=root)
    assert manifest.shape[0] == items
    assert split_sizes(manifest) == sizes


@pytest.mark.data
def test_the_rule_for_omniglot_is_the_published_split():
    with np.load(real("omniglot_28x28.npz")) as file:
        names, published = file["class_names"], file["class_split"]
    from varscale.data.readers.omniglot import _split

    assert [_split("vinyals", str(n), "") for n in names] == published.tolist()
