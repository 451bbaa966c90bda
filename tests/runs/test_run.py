"""Making a run directory: whole or not at all, with nothing left beside it."""

import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from short_runs import config_of, new_run

import varscale.runs.run
from varscale.runs import Run

KILLED = """
import os, pathlib, signal, sys
sys.path.insert(0, {tests!r})
import varscale.runs.run
from short_runs import config_of, new_run

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

real, place = varscale.runs.run.write_whole, sys.argv[2]
if place in ("config.yaml", "provenance.json"):
    varscale.runs.run.write_whole = lambda path, content: (
        killed() if path.name == place else real(path, content)
    )
elif place == "rename":
    pathlib.Path.rename = killed
else:
    pathlib.Path.unlink = killed
new_run(pathlib.Path(sys.argv[1]), config_of())
"""


def kill_at(place, path):
    """Make a run in another process, which is killed on the way."""
    code = KILLED.format(tests=str(Path(__file__).parents[1]))
    done = subprocess.run([sys.executable, "-c", code, str(path), place], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("place", ["config.yaml", "provenance.json", "rename"])
def test_what_a_kill_leaves_is_swept_when_the_run_is_made_again(place, tiny_images, tmp_path):
    path, other = tmp_path / "run", tmp_path / ".run.other.new"
    other.mkdir()
    kill_at(place, path)
    assert not path.exists()
    new_run(path, config_of())
    assert Run.open(path).config.n_way == 3
    assert {p.name for p in tmp_path.iterdir()} == {"run", other.name}


def test_a_kill_when_the_run_is_there_leaves_no_lock(tiny_images, tmp_path):
    path = tmp_path / "run"
    kill_at("unlink", path)
    with pytest.raises(ValueError, match=r"run exists, and is a run\. Continue it: varscale"):
        new_run(path, config_of())
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert Run.open(path).config.n_way == 3


def test_an_empty_folder_becomes_the_run_and_another_is_left_alone(
    tiny_images, tmp_path, monkeypatch
):
    (tmp_path / "empty").mkdir()
    new_run(tmp_path / "empty", config_of())
    assert Run.open(tmp_path / "empty").config.n_way == 3
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    new_run(Path(), config_of())
    assert Run.open(Path()).config.n_way == 3  # still the folder that we stand in
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    new_run(tmp_path / "link", config_of())
    assert Run.open(tmp_path / "there").config.n_way == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").touch()
    with pytest.raises(ValueError, match="mine exists, and is a folder with other files. Choose"):
        new_run(tmp_path / "mine", config_of())
    with pytest.raises(ValueError, match="notes exists, and is a file. Choose another directory"):
        new_run(tmp_path / "mine" / "notes", config_of())
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes"]


def test_two_that_make_the_same_run_do_not_sweep_each_other(tiny_images, tmp_path, monkeypatch):
    path, real, told = tmp_path / "run", varscale.runs.run.write_whole, []

    def second():
        try:
            new_run(path, config_of())
        except ValueError as error:
            told.append(str(error))

    thread = Thread(target=second)

    def slowly(file, content):
        if not thread.ident:
            thread.start()
            thread.join(0.3)  # it waits for this one, however long that takes
            assert thread.is_alive()
        real(file, content)

    monkeypatch.setattr(varscale.runs.run, "write_whole", slowly)
    new_run(path, config_of())
    thread.join()
    assert len(told) == 1
    assert "run exists" in told[0]
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
