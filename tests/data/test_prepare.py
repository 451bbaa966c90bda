"""Prepare a source: what is asked for, what is wrong with it, and interruptions."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time

import forms
import numpy as np
import pytest
from PIL import Image

from varscale.data import Dataset
from varscale.data.prepare import find_prepared, prepare
from varscale.data.readers import ReaderOptions
from varscale.data.store import check, list_prepared


def test_what_was_prepared_already_is_known(tmp_path, root):
    source = forms.csv_zip(tmp_path / "s")
    assert find_prepared("miniimagenet", source, ReaderOptions(size=8), root=root) is None
    first = prepare("miniimagenet", source, ReaderOptions(size=8), root=root)
    there = find_prepared("miniimagenet", source, ReaderOptions(size=8), root=root)
    assert there.hash == first.hash
    assert find_prepared("miniimagenet", source, ReaderOptions(size=9), root=root) is None
    os.utime(source)  # touched: it may have changed
    assert find_prepared("miniimagenet", source, ReaderOptions(size=8), root=root) is None
    assert prepare("miniimagenet", source, ReaderOptions(size=8), root=root).hash == first.hash


def test_the_csv_form_is_known_under_any_name(tmp_path, root):
    manifest = prepare("mini", forms.csv_flat(tmp_path / "s"), ReaderOptions(size=8), root=root)
    assert forms.split_sizes(manifest) == [3, 2, 2]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mine", ReaderOptions(rotations=True), "'rotations' does not apply to the format 'fol"),
        ("mine", ReaderOptions(split="1/1/1"), "has its split in folders"),
        ("miniimagenet", ReaderOptions(split="1/1/1"), "'split' does not apply"),
        ("omniglot", ReaderOptions(split="lakes"), "Did you mean 'lake'"),
    ],
)
def test_options_that_mean_nothing_are_refused(name, options, message, tmp_path, root):
    with pytest.raises(ValueError, match=message):
        prepare(name, forms.split_class_folders(tmp_path / "s"), options, root=root)


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
    good = prepare("miniimagenet", forms.csv_zip(tmp_path / "s"), ReaderOptions(size=8), root=root)
    with pytest.raises(ValueError, match=message):
        prepare("miniimagenet", broken(tmp_path, harm), ReaderOptions(size=8), root=root)
    assert check(root, "miniimagenet").hash == good.hash
    assert [p.name for p in root.iterdir() if p.name != ".miniimagenet.lock"] == ["miniimagenet"]


def test_skip_bad_lists_what_was_left_out(tmp_path, root):
    source = broken(tmp_path, "truncated")
    manifest = prepare("miniimagenet", source, ReaderOptions(size=8, skip_bad=True), root=root)
    assert len(manifest.skipped) == 1
    assert "n0200000001.png" in manifest.skipped[0]
    assert manifest.class_counts == [4, 3, 4, 4, 4, 4, 4]
    dataset = Dataset.open("miniimagenet", root)
    assert dataset.items[:, 0, 0, 0].tolist() == [i for i in range(1, 29) if i != 6]
    for path in (source / "images").iterdir():
        path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="None of the 28 images"):
        prepare("miniimagenet", source, ReaderOptions(size=8, skip_bad=True), root=root)


def test_empty_and_wrong_sources(tmp_path, root):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="Expected images in .*, got none"):
        prepare("mine", tmp_path / "empty", root=root)
    with pytest.raises(ValueError, match="got nothing there"):
        prepare("mine", tmp_path / "nowhere", root=root)
    forms.write(tmp_path / "loose" / "a.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="outside of folders, such as a.png"):
        prepare("mine", tmp_path / "loose", root=root)
    forms.write(tmp_path / "x.zip", b"no zip")
    with pytest.raises(ValueError, match="not a readable zip"):
        prepare("mine", tmp_path / "x.zip", root=root)
    forms.write(tmp_path / "x.tar.gz", b"no tar")
    with pytest.raises(ValueError, match="not a readable tar"):
        prepare("cifar-fs", tmp_path / "x.tar.gz", root=root)
    forms.write(tmp_path / "x.txt", b"text")
    with pytest.raises(ValueError, match=r"a folder, a .zip or a .tar.gz, got"):
        prepare("cub", tmp_path / "x.txt", root=root)
    with pytest.raises(ValueError, match="image size from 1 to 1024, got 0"):
        prepare("mine", tmp_path / "loose", ReaderOptions(size=0), root=root)
    for name in ("", ".hidden", "a/b"):
        with pytest.raises(ValueError, match="name of letters, digits"):
            prepare(name, tmp_path / "empty", root=root)


def test_a_full_disk_is_said_in_words(tmp_path, root, monkeypatch):
    source = forms.csv_zip(tmp_path / "s")
    good = prepare("miniimagenet", source, ReaderOptions(size=8), root=root)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ValueError, match="No space left .* unchanged"):
        prepare("miniimagenet", source, ReaderOptions(size=16), root=root)
    assert check(root, "miniimagenet").hash == good.hash


KILLED = """
import sys
from pathlib import Path
from varscale.data.prepare import prepare
from varscale.data.readers import ReaderOptions
prepare("mine", Path(sys.argv[1]), ReaderOptions(size=32), root=Path(sys.argv[2]))
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
    whole = prepare("mine", source, ReaderOptions(size=32), root=tmp_path / "whole").hash
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
