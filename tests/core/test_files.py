"""Files that are either complete or not there."""

import errno
import os

import pytest

from varscale.core.files import write_whole


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
