"""Sources that somebody made to do harm: each ends in a sentence, soon and in little memory."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import struct
import tarfile
import zipfile

import forms
import numpy as np
import pytest

from varscale.data.pickles import read_pickle
from varscale.data.prepare import prepare
from varscale.data.readers import ReaderOptions
from varscale.data.store import list_prepared

# --- pickles --------------------------------------------------------------------------------------

DOUBLINGS = 20  # a walk of two million members: enough to be refused, and to end on careless code


def laughs(kind):
    """A container that holds another one twice, and so on: few bytes, endless members."""
    value = {0: 1} if kind is dict else kind([1])
    for _ in range(DOUBLINGS):
        value = {0: value, 1: value} if kind is dict else kind([value, value])
    return pickle.dumps({"image_data": value}, 2)


def nested_key():
    """A tuple of tuples of tuples as a key, whose hash walks all of it."""
    content = b"\x80\x02}K\x01\x85q\x00"
    for i in range(DOUBLINGS):
        content += b"h" + bytes([i]) + b"\x86q" + bytes([i + 1])
    return content + b"K\x02s."


def repeated_bytes():
    """Text of a kilobyte that becomes bytes a hundred times, by five bytes of the file each."""
    text = b"X" + struct.pack("<I", 1000) + 1000 * b"a" + b"X\x06\x00\x00\x00latin1"
    return b"\x80\x02c_codecs\nencode\nq\x00" + text + b"\x86q\x01R" + 100 * b"0h\x00h\x01R" + b"."


def array_of(shape):
    content = b"\x80\x02cnumpy.core.numeric\n_frombuffer\n(U\x01acnumpy\ndtype\nU\x02u1\x85R"
    return content + shape + b"U\x01CtR."


HOSTILE = {
    "lists": (laughs(list), "at most 1,000,000 members, got more"),
    "tuples": (laughs(tuple), "at most 1,000,000 members, got more"),
    "dictionaries": (laughs(dict), "at most 1,000,000 members, got more"),
    "key": (nested_key(), "names or numbers as keys, got a tuple"),
    "deep": (b"\x80\x02" + 10_000 * b"]" + 9_999 * b"a" + b".", "at most 50 containers in each"),
    "itself": (b"\x80\x02]q\x00(h\x00h\x00e.", "at most 50 containers in each other"),
    "many": (b"\x80\x02" + 1_000_000 * b"]" + b".", "at most 1,000,000 instructions, got more"),
    "repeated": (repeated_bytes(), "arrays as large as the file, got the same bytes repeated"),
    "shape": (array_of(b"K\x01K\x01\x85\x86"), "shape is not a list of whole numbers"),
    "set": (pickle.dumps({1, 2}, 4), "has the instruction EMPTY_SET"),
    "no pickle": (b"\xff\xfe", "has the instruction 0xff"),
    "claim": (b"\x80\x05\x96" + struct.pack("<Q", 2**30) + b".", "it ends too early"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pickle_that_means_more_than_it_has_is_refused(name):
    content, message = HOSTILE[name]
    with pytest.raises(ValueError, match=f"here was not loaded: .*{message}.* Get it again"):
        read_pickle(content, "here")


def test_a_hostile_pickle_ends_prepare_in_a_sentence(tmp_path, root):
    source = forms.cache_pickles(tmp_path / "s")
    forms.write(source / "mini-imagenet-cache-val.pkl", laughs(list))
    with pytest.raises(ValueError, match=r"cache-val.pkl in .* was not loaded: expected at most"):
        prepare("miniimagenet", source, root=root)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_honest_sharing_and_depth_are_read(protocol):
    labels, name = list(range(1000)), "the same name"
    content = {"a": labels, "b": [labels, labels], "c": 1000 * [name], "d": (1, (2, name))}
    content["scalars"] = [np.float64(i) for i in range(100)]
    for _ in range(45):
        content = {"inside": content}
    read = read_pickle(pickle.dumps(content, protocol), "here")
    while "inside" in read:
        read, content = read["inside"], content["inside"]
    assert read.pop("d") == [1, [2, name]]
    assert read == {key: content[key] for key in ("a", "b", "c", "scalars")}


# --- archives -------------------------------------------------------------------------------------

MUCH = 2**29


def claiming_tar(path, name="a/0.png"):
    """A tar of one header, which says that half a gigabyte follows."""
    info = tarfile.TarInfo(name)
    info.size = MUCH
    path.write_bytes(info.tobuf() + bytes(1024))


def claiming_zip(path, name="a/0.png"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(1000))
        archive.filelist[0].file_size = MUCH


def sparse_folder(path):
    forms.write(path / "b" / "0.png", forms.encoded(forms.picture(1)))
    forms.write(path / "a" / "0.png", b"")
    with (path / "a" / "0.png").open("r+b") as file:
        file.truncate(MUCH)


@pytest.mark.parametrize(
    ("name", "make"),
    [("x.tar", claiming_tar), ("x.tar.gz", claiming_tar), ("x.zip", claiming_zip)],
)
def test_a_picture_of_half_a_gigabyte_is_not_unpacked(name, make, tmp_path, root):
    make(tmp_path / name)
    with pytest.raises(ValueError, match=r"at most 268,435,456 bytes .* got 536,870,912 in 'a/0."):
        prepare("mine", tmp_path / name, root=root)


def test_a_picture_of_half_a_gigabyte_is_not_read(tmp_path, root):
    sparse_folder(tmp_path / "s")
    with pytest.raises(ValueError, match=r"at most 268,435,456 bytes .* got 536,870,912 in 'a/0."):
        prepare("mine", tmp_path / "s", root=root)


def tar_of(path, contents):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_a_tar_of_many_large_files_is_refused_before_it_fills_the_memory(
    tmp_path, root, monkeypatch
):
    monkeypatch.setattr("varscale.data.tree.MAX_TAR", 100_000, raising=False)
    picture = forms.encoded(forms.picture(1))
    large = tar_of(tmp_path / "x.tgz", {f"{c}/{i}.png": picture for c in "ab" for i in range(99)})
    with pytest.raises(ValueError, match="unpacks to more than 100,000 bytes.* unpack it"):
        prepare("mine", large, root=root)
    small = tar_of(tmp_path / "y.tgz", {f"{c}/{i}.png": picture for c in "ab" for i in range(9)})
    assert prepare("mine", small, root=root).class_counts == [9, 9]


def test_a_tar_that_does_not_fit_in_memory_is_said_in_words(tmp_path, root, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(tarfile.ExFileObject, "read", full)
    with pytest.raises(ValueError, match="does not fit into memory. Unpack it"):
        prepare("mine", tar_of(tmp_path / "x.tgz", {"a/0.png": b"x"}), root=root)


@pytest.mark.parametrize("form", [gzip, bz2, lzma], ids=lambda form: form.__name__)
def test_a_damaged_tar_is_said_in_words(form, tmp_path, root):
    noise = np.random.default_rng(0).bytes(1_000_000)
    content = bytearray(gzip.decompress(tar_of(tmp_path / "x", {"a/0.png": noise}).read_bytes()))
    content = bytearray(form.compress(bytes(content)))
    content[500_000:500_100] = 100 * b"\xff"
    forms.write(tmp_path / "x.tar.gz", bytes(content))
    with pytest.raises(ValueError, match="not a readable tar archive"):
        prepare("mine", tmp_path / "x.tar.gz", root=root)


def test_a_tar_with_damaged_headers_is_said_in_words(tmp_path, root):
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a/0.png")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    with pytest.raises(ValueError, match="not a readable tar archive: a damaged header.* Copy it"):
        prepare("mine", tmp_path / "x.tar", root=root)
    forms.write(tmp_path / "empty.tar", b"")
    with pytest.raises(ValueError, match=r"^[^\n]*not a readable tar[^\n]*Copy it again\.$"):
        prepare("mine", tmp_path / "empty.tar", root=root)


def test_an_array_that_claims_more_than_there_is_memory_is_said_in_words(tmp_path, root):
    header = io.BytesIO()
    claim = {"descr": "|u1", "fortran_order": False, "shape": (2**46, 28, 28)}
    np.lib.format.write_array_header_1_0(header, claim)
    with zipfile.ZipFile(tmp_path / "o.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue())
    with pytest.raises(ValueError, match=r"images.npy in .* cannot be read"):
        prepare("omniglot", tmp_path / "o.npz", root=root)


# --- names and classes ----------------------------------------------------------------------------

LATIN = b"caf\xe9"
PICTURE = forms.encoded(forms.picture(1))


def latin_folder(path):
    for name in (b"a", LATIN):
        forms.write(path / os.fsdecode(name) / "0.png", PICTURE)
    return path


def latin_tar(path):
    names = [os.fsdecode(name) for name in (b"a", LATIN)]
    return tar_of(path.with_suffix(".tgz"), {f"{name}/0.png": PICTURE for name in names})


def latin_zip(path):
    """A zip that says its names are UTF-8."""
    path = path.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("é€é/0.png", PICTURE)  # as long as what replaces it
    name, other = "é€é".encode(), b"cafe\xe9\xe9\xe9"
    path.write_bytes(path.read_bytes().replace(name, other))
    return path


def latin_csv(path):
    forms.csv_flat(path)
    (path / "val.csv").write_bytes((path / "val.csv").read_bytes().replace(b"n04", LATIN))
    return path


def latin_labels(path):
    path = path.with_suffix(".npz")
    np.savez(path, X=np.eye(4), y=np.array([b"a", b"a", LATIN, LATIN]))
    return path


def latin_names(path):
    path = path.with_suffix(".npz")
    np.savez(path, X=np.eye(2), y=[0, 1], class_names=np.array([LATIN, b"b"]))
    return path


def no_characters(path):
    path = path.with_suffix(".npz")
    np.savez(path, X=np.eye(2), y=np.array([1, 0x7FFFFFFF], np.uint32).view("U1"))
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (latin_folder, r"name of every image of .* in UTF-8, got 'caf\\udce9/0.png'. Rename it"),
        (latin_tar, r"name of every image of .*x.tgz in UTF-8, got 'caf\\udce9/0.png'. Rename it"),
        (latin_zip, r"the names in .*x.zip in UTF-8, got b'cafe.xe9.xe9.xe9/0.png'. Pack it again"),
        (latin_csv, r"Expected val.csv in .* in UTF-8, got the byte 0xe9 at .* as UTF-8"),
        (latin_labels, r"every entry in the labels of .* in UTF-8, got 'caf\\udce9'. Rename it"),
        (latin_names, r"every entry in the class_names of .* in UTF-8, got 'caf\\udce9'"),
        (no_characters, r"Expected labels of .* as text, got "),
    ],
)
def test_names_that_are_not_utf_8_are_named(make, message, tmp_path, root):
    with pytest.raises(ValueError, match=message):
        prepare("mine", make(tmp_path / "x"), root=root)


def test_class_names_of_pickles_are_checked_too(tmp_path, root):
    source = forms.cache_pickles(tmp_path / "s")
    content = {"image_data": np.zeros((2, 8, 8, 3), np.uint8), "class_dict": {"\udce9": [0, 1]}}
    forms.write(source / "mini-imagenet-cache-val.pkl", pickle.dumps(content))
    with pytest.raises(ValueError, match=r"name of every class of .* in UTF-8, got '\\udce9'"):
        prepare("miniimagenet", source, root=root)


def test_class_names_of_cifar_are_checked_too(tmp_path, root):
    source = forms.cifar(tmp_path / "s")
    with tarfile.open(source) as archive:
        content = {m.name: archive.extractfile(m).read() for m in archive}
    name = "cifar-100-python/meta"
    meta = pickle.loads(content[name])
    meta[b"fine_label_names"][3] = LATIN
    tar_of(source, {**content, name: pickle.dumps(meta, 2)})
    with pytest.raises(ValueError, match=r"name of every class of .* in UTF-8, got 'caf\\udce9'"):
        prepare("cifar-fs", source, root=root)


@pytest.mark.parametrize("kind", ["folder", "embeddings", "bad images"])
def test_one_class_is_too_few(kind, tmp_path, root):
    source, options = tmp_path / "s", ReaderOptions(skip_bad=kind == "bad images")
    if kind == "embeddings":
        source, options = tmp_path / "s.npz", ReaderOptions()
        np.savez(source, X=np.eye(3), y=["a", "a", "a"])
    else:
        forms.write(source / "a" / "0.png", PICTURE)
    if kind == "bad images":
        forms.write(source / "b" / "0.png", b"nothing")
    with pytest.raises(ValueError, match=r"at least two classes in .* got only 'a'. Add classes"):
        prepare("mine", source, options, root=root)
    assert list_prepared(root) == []
