"""Pickles are read without running anything in them."""

import os
import pickle

import forms
import numpy as np
import pytest

from varscale.data.pickles import read_pickle
from varscale.data.prepare import prepare


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
    with pytest.raises(ValueError, match="does not have the expected content"):
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
