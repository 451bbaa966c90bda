"""The queue of long runs: every command in it is one that can be run, and it stops when told to."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from varscale.cli.main import main

QUEUE = Path(__file__).parent.parent / "benchmarks" / "queue.sh"

PROGRAM = """#!/usr/bin/env bash
trap 'echo saved >> "$VARSCALE_HOME/calls"; kill $! 2> /dev/null; exit 143' TERM
printf '%s\\t' "$@" >> "$VARSCALE_HOME/calls"
echo >> "$VARSCALE_HOME/calls"
[ ! -e "$VARSCALE_HOME/slow" ] || { sleep 60 & wait $!; }
"""


@pytest.fixture
def place(tmp_path):
    """A folder of the queue whose varscale only notes how it is called."""
    program = tmp_path / "varscale/.venv/bin/varscale"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (tmp_path / "varscale/.venv/ready").touch()
    (tmp_path / "varscale/Makefile").write_text(".venv/ready:\n")
    (tmp_path / "varscale/benchmarks").mkdir()
    shutil.copy(QUEUE, tmp_path / "varscale/benchmarks")
    for folder in ("results", "data/miniimagenet", "data/miniimagenet32"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def command(place):
    return {"args": ["bash", str(QUEUE), str(place), str(place)]}


def calls(place):
    lines = (place / "calls").read_text().splitlines()
    return [line.rstrip("\t").split("\t") for line in lines]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_every_command_of_the_queue_names_cells_that_are_there(place, capsys):
    subprocess.run(**command(place), check=True, stdout=subprocess.DEVNULL)
    noted = calls(place)
    assert noted[0][:6] == ["reproduce", "table2", "--size", "paper", "--seeds", "1"]
    assert len(noted) > 15
    for words in noted:
        assert main([*words, "--show", "--json"]) == 0, capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_a_place_that_was_begun_keeps_its_own_list(place):
    own = place / "varscale/benchmarks/queue.sh"
    own.write_text('#!/usr/bin/env bash\necho "$1" > "$1/calls"\n')
    subprocess.run(**command(place), check=True)
    assert calls(place) == [[str(place)]]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_it_passes_sigterm_on_and_ends(place):
    (place / "slow").touch()
    with subprocess.Popen(**command(place), stdout=subprocess.DEVNULL) as queue:
        while not (place / "calls").exists() or not (place / "calls").read_text().endswith("\n"):
            assert queue.poll() is None
            time.sleep(0.05)
        queue.send_signal(signal.SIGTERM)
        assert queue.wait() == 143
    assert calls(place)[1:] == [["saved"]]
