"""Readers: every form of every dataset, and sources that they do not accept."""

import os
import pickle
from pathlib import Path

import forms
import numpy as np
import pytest

from varscale import functional as vf
from varscale.data import Dataset, EpisodeSampler
from varscale.data.prepare import prepare
from varscale.data.readers import ReaderOptions

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
    manifest = prepare("miniimagenet", form(tmp_path / "source"), ReaderOptions(size=8), root=root)
    assert forms.split_sizes(manifest) == [3, 2, 2]
    assert manifest.class_names == ["n01", "n02", "n03", "n04", "n05", "n06", "n07"]
    assert manifest.class_counts == [forms.PER_CLASS] * 7
    dataset = Dataset.open("miniimagenet", root)
    # The picture with number k has k as its red: the right image under the right label, in order.
    assert dataset.items[:, 4, 4, 0].tolist() == list(range(1, 29))
    assert dataset.items.shape == (28, 8, 8, 3)
    default = prepare("other", form(tmp_path / "again"), form="miniimagenet", root=root)
    assert default.shape == [28, 84, 84, 3]


def test_the_same_content_has_the_same_hash_however_it_was_packed(tmp_path, root):
    options = ReaderOptions(size=8)
    hashes = {
        prepare(
            "mini", form(tmp_path / form.__name__), options, form="miniimagenet", root=root
        ).hash
        for form in MINI[:4]
    }
    assert len(hashes) == 1


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


def test_a_wrong_dtype_of_pixels(tmp_path, root):
    source = forms.cache_pickles(tmp_path / "s")
    content = {"image_data": np.zeros((4, 8, 8, 3)), "class_dict": {"n04": [0, 1], "n05": [2, 3]}}
    forms.write(source / "mini-imagenet-cache-val.pkl", pickle.dumps(content))
    with pytest.raises(ValueError, match="images as a uint8 array in .*, got float64"):
        prepare("miniimagenet", source, root=root)


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
    lake = prepare("omniglot", source, ReaderOptions(split="lake"), root=root)
    assert forms.split_sizes(lake) == [46, 0, 3]
    turned = prepare("omniglot", source, ReaderOptions(rotations=True), root=root)
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
    manifest = prepare("tieredimagenet", source, ReaderOptions(size=8), root=root)
    assert forms.split_sizes(manifest) == [3, 2, 2]


@pytest.mark.parametrize(("name", "sizes"), [("cifar-fs", [98, 1, 1]), ("fc100", [60, 20, 20])])
def test_cifar_100(name, sizes, tmp_path, root):
    manifest = prepare(name, forms.cifar(tmp_path / "source"), root=root)
    # Only three of the small file's classes have real names.
    assert forms.split_sizes(manifest) == sizes
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
    manifest = prepare("mine", source, ReaderOptions(size=12, split="6/2/2"), root=root)
    assert forms.split_sizes(manifest) == [6, 2, 2]
    counts = dict(zip(manifest.class_names, manifest.class_counts, strict=True))
    assert counts == {f"class{c}": 2 + c for c in range(10)}
    again = prepare("again", source, ReaderOptions(size=12, split="6/2/2"), root=root)
    assert again.hash == manifest.hash
    other = prepare("other", source, ReaderOptions(size=12, split="6/2/2", seed=1), root=root)
    assert other.hash != manifest.hash
    given = prepare("given", forms.split_class_folders(tmp_path / "split"), root=root)
    assert forms.split_sizes(given) == [3, 2, 2]


def test_a_class_in_two_splits_is_refused(tmp_path, root):
    source = forms.split_class_folders(tmp_path / "s")
    forms.write(source / "test" / "n01" / "new.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="every class in one split, got 'n01' in test and in tr"):
        prepare("mine", source, root=root)


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
        ("miniimagenet", "miniimagenet_84x84.zip", ReaderOptions(size=8), 28_000, [64, 16, 20]),
        ("omniglot", "omniglot_28x28.npz", ReaderOptions(), 32_460, [1028, 172, 423]),
        ("omniglot", "omniglot_28x28.npz", ReaderOptions(split="lake"), 32_460, [964, 0, 659]),
        ("clinc150", "clinc150_minilm.npz", ReaderOptions(), 22_500, [50, 50, 50]),
        ("banking77", "banking77_minilm.npz", ReaderOptions(), 13_083, [25, 25, 27]),
    ],
)
def test_real_data(name, file, options, items, sizes, root):
    manifest = prepare(name, real(file), options, root=root)
    assert manifest.shape[0] == items
    assert forms.split_sizes(manifest) == sizes


@pytest.mark.data
def test_the_rule_for_omniglot_is_the_published_split():
    with np.load(real("omniglot_28x28.npz")) as file:
        names, published = file["class_names"], file["class_split"]
    from varscale.data.readers.omniglot import _split

    assert [_split("vinyals", str(n), "") for n in names] == published.tolist()
