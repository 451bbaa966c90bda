"""What a folder of checkpoints holds, whenever its process is killed."""

import itertools
import os
from pathlib import Path

import pytest
import torch

from varscale.runs.checkpoint import forget_after, newest_checkpoint, save_checkpoint

TENSORS = {"weight": torch.zeros(2)}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def files_of(*steps):
    return [f"{step:08}.{suffix}" for step in steps for suffix in ("json", "safetensors")]


class Killed(BaseException):
    pass


def killed_at(number, patch):
    """From the given operation on nothing reaches the disk, as if the process were gone."""
    calls = itertools.count(1)

    def dies(real):
        def operation(*arguments, **options):
            if next(calls) >= number:
                raise Killed
            return real(*arguments, **options)

        return operation

    for owner, name in ((Path, "open"), (Path, "replace"), (Path, "unlink"), (os, "fsync")):
        patch.setattr(owner, name, dies(getattr(owner, name)))


def test_killed_at_any_operation_a_save_leaves_nothing_behind(tmp_path, monkeypatch):
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        for step in (1, 2):
            save_checkpoint(folder, step, TENSORS, {})
        with monkeypatch.context() as patch:
            killed_at(number, patch)
            try:
                save_checkpoint(folder, 3, TENSORS, {})
                break
            except Killed:
                pass
        last = newest_checkpoint(folder)
        assert last.step in (2, 3), number
        save_checkpoint(folder, 4, TENSORS, {})
        assert names(folder) == files_of(last.step, 4), number
    assert number > 8  # it was killed in the writing of two files and in the removal of two


def test_going_back_removes_what_came_later_and_what_is_half_there(tmp_path):
    for step in (5, 7):
        save_checkpoint(tmp_path, step, TENSORS, {})
    halves = ("00000003.safetensors", ".00000008.json.new", "00000009.safetensors")
    for name in (*halves, "notes.json"):
        (tmp_path / name).touch()
    forget_after(tmp_path, 6)
    assert names(tmp_path) == [*files_of(5), "notes.json"]


@pytest.mark.parametrize("folder", ["never made", "."])
def test_no_checkpoint_is_none(tmp_path, folder):
    assert newest_checkpoint(tmp_path / folder) is None
    forget_after(tmp_path / folder, 0)
