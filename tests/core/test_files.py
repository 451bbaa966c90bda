"""Files that are either complete or not there."""

import errno
import os

import pytest

from varscale.core.files import check_target, marked, write_whole


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_what_is_not_written_whole_leaves_the_old_file_and_nothing_else(
    error, tmp_path, monkeypatch
):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fails(handle):
        raise error

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(type(error)) as raised:
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    if isinstance(error, OSError):
        assert raised.value.filename == str(path)


def test_a_file_that_we_did_not_write_is_never_replaced(tmp_path):
    ours, empty, theirs = (tmp_path / name for name in ("ours", "empty", "theirs"))
    ours.write_text("<by varscale>\n1")
    empty.touch()
    theirs.write_bytes(b"> <by varscale>")  # says so, but not where we say it
    for path in (tmp_path / "new", ours, empty):
        check_target(
            path, "a page", marked(b"<by varscale>"), reads=[None, "no such file", "x" * 999]
        )
    (tmp_path / "alias").symlink_to(ours)
    for path, message in [
        (theirs, "or a page that varscale wrote, got .*theirs, which is neither"),
        (tmp_path, "in an existing folder"),
        (tmp_path / "no" / "file", "in an existing folder"),
        (tmp_path / "alias", "that is not read"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_target(path, "a page", marked(b"<by varscale>"), reads=[str(ours)])


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    write_whole(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "file").read_bytes() == b"content"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["far", "file", "link"]
