"""Cells run once, wherever and in whatever order, and the table is that of a serial run."""

import os
import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import TINY

from varscale.cli.main import main
from varscale.data import Dataset
from varscale.paper.cluster import reproduce_on
from varscale.paper.evidence import Evidence
from varscale.paper.reproduce import Job, missing, reproduce
from varscale.paper.results import Results
from varscale.paper.sizes import SIZES
from varscale.runs import TrainConfig
from varscale.version import source_commit

SHORT = TrainConfig(
    **TINY,
    preset="reproduction",
    test_query=4,
    steps=40,
    lr_every=20,
    val_every=10,
    val_episodes=20,
    checkpoint_every=5,
)
SCALERS = {"pn": None, "svs": "svs", "dsvs": "d-svs"}


def make_jobs(**changed):
    return [
        Job(name, "paper", seed, given=replace(SHORT, scaler=scaler, **changed))
        for name, scaler in SCALERS.items()
        for seed in range(2)
    ]


@pytest.fixture(scope="module")
def serial(tiny_images, tmp_path_factory):
    pytest.importorskip("lightning_fabric", reason="needs the extra 'train'")
    path = tmp_path_factory.mktemp("serial")
    results = Results(path / "results")
    rows = list(reproduce(make_jobs(), results, path / "runs"))
    return results, rows


def timeless(rows):
    return sorted((replace(row, minutes=0.0) for row in rows), key=lambda row: row.key)


def test_what_is_there_is_not_run_again(serial):
    results, rows = serial
    assert missing(make_jobs(), results) == []
    assert timeless(results.rows("paper")) == timeless(rows)
    for row in rows:
        arrays = results.arrays(row)
        hits = arrays["hits"]
        assert arrays["val_step"].tolist() == [10, 20, 30, 40]
        assert arrays["val_accuracy"].max() == pytest.approx(row.val_accuracy)
        assert arrays["loc"].mean() == pytest.approx(row.scale_mean, rel=1e-2)
        assert ("scale_p50" in arrays) == (row.cell == "dsvs")
        assert hits.shape == (SIZES["paper"].episodes,)
        assert hits.mean() / 12 == pytest.approx(row.accuracy)


def test_a_row_that_is_taken_out_comes_back_the_same(serial, tmp_path):
    results, rows = Results(tmp_path / "results"), serial[1]
    shutil.copytree(serial[0].folder, results.folder)
    path = tmp_path / "results/paper.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]))
    (left,) = missing(make_jobs(), results)
    list(reproduce([left], results, tmp_path / "other"))  # trained again, too
    assert timeless(results.rows("paper")) == timeless(rows)


def test_rows_of_another_precision_stand_beside(serial, tmp_path):
    results = Results(tmp_path / "results")
    shutil.copytree(serial[0].folder, results.folder)
    job = replace(make_jobs()[0], precision="bf16-mixed")
    assert missing([job], results) == [job]
    (row,) = reproduce([job], results, tmp_path / "runs")
    assert row.precision == "bf16-mixed"
    assert missing([job, *make_jobs()], results) == []
    assert len(results.rows("paper")) == len(serial[1]) + 1
    assert len(Evidence(results, "paper").runs(job.cell)) == 2  # float32's alone


def test_a_row_says_the_commit_of_its_source(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert source_commit() == ""  # no git
    monkeypatch.setattr("varscale.version.__file__", str(tmp_path / "version.py"))
    assert source_commit() == ""  # not a checkout
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "somebody's"], check=True)
    assert source_commit() == ""  # installed in a checkout of something else
    (tmp_path / "version.py").touch()
    subprocess.run([*git, "add", "version.py"], check=True)
    assert len(source_commit()) == 12


def test_images_are_not_frozen(tiny_images):
    job = replace(make_jobs()[0], size="frozen")
    with pytest.raises(ValueError, match="Expected embeddings for the size frozen, got images"):
        job.resolve(Dataset.open(tiny_images))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table1", "--row", "Conv-4: MAML"], "took Conv-4: MAML from elsewhere"),
        (["table2", "--plan", "--gflops", "0"], "Expected gflops > 0"),
        (["table2", "--plan", "--results", __file__], "Expected a folder"),
        (["table2", "--plan", "--runs", __file__], "Expected a folder"),
        (["table2", "--jobs", "0"], "Expected jobs >= 1"),
        (["table2", "--seeds", "0"], "Expected seeds >= 1"),
        (["table9"], "Unknown table or figure"),
        ([], "Expected a table or figure, got none"),
        (["--print-config", "svs_cosin_5w1s"], "Did you mean 'svs_cosine_5w1s'"),
    ],
)
def test_what_cannot_be_run_is_said_first(home, words, message, capsys):
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_row_of_another_config_does_not_count(serial):
    assert len(missing(make_jobs(steps=41), serial[0])) == 6


def test_a_row_without_its_arrays_does_not_count(serial, tmp_path):
    rows, results = serial[1], Results(tmp_path)
    results.add_all([(row, serial[0].arrays(row)) for row in rows[1:]])
    shutil.copy(serial[0].folder / "paper.csv", tmp_path / "paper.csv")
    assert missing(make_jobs(), results) == make_jobs()[:1]


@pytest.mark.slow
def test_on_a_cluster_whose_worker_is_killed_the_table_is_the_same(serial, tmp_path):
    results, rows = Results(tmp_path / "others"), serial[1]
    runs = tmp_path / "cluster"

    def kill():
        """The first worker that is found in the middle of a run."""
        while not killed and not over.is_set():
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    held = [os.readlink(fd) for fd in (process / "fd").iterdir()]
                except OSError:
                    continue
                if any(name.startswith(str(runs)) for name in held):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed.append(process.name)
                    break

    killed, over = [], threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        done = list(reproduce_on(make_jobs(), results, runs, workers=3, scheduler=None))
    finally:
        over.set()
        killer.join()
    assert killed
    assert timeless(done) == timeless(rows)
    for row in rows:
        ours, theirs = results.arrays(row), serial[0].arrays(row)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_cluster_that_is_not_there(tmp_path, as_user):
    pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    with pytest.raises(ValueError, match="no Dask scheduler at tcp://127.0.0.1:1"):
        list(
            reproduce_on(
                make_jobs()[:1],
                Results(tmp_path / "results"),
                tmp_path / "runs",
                workers=1,
                scheduler="tcp://127.0.0.1:1",
            )
        )
