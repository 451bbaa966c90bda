"""Cells run once, wherever and in whatever order, and the table is that of a serial run."""

import csv
import os
import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from varscale.cli.main import main
from varscale.evaluation.metrics import t_interval
from varscale.paper.cells import configs, entries
from varscale.paper.cluster import reproduce_on
from varscale.paper.evidence import Evidence
from varscale.paper.reproduce import Job, missing, reproduce
from varscale.paper.results import Results
from varscale.paper.scale import SCALES, scaled, with_scaler_ratios
from varscale.paper.tables import Gain, gains, table
from varscale.runs.config import TrainConfig
from varscale.runs.config_files import read_config, shipped_configs
from varscale.version import source_commit

BASE = """
dataset: tiny-images
backbone: tiny
metric: cosine
n_way: 3
n_query: 4
test_query: 4
steps: 40
lr_every: 20
val_every: 10
val_episodes: 20
checkpoint_every: 5
accelerator: cpu
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_images):
    path = tmp_path_factory.mktemp("configs")
    (path / "base.yaml").write_text(BASE)
    for name, line in {"pn": "", "svs": "scaler: svs\n", "dsvs": "scaler: d-svs\n"}.items():
        (path / f"{name}.yaml").write_text(f"base: base.yaml\n{line}")
    return path


def jobs_in(folder, seeds=2):
    return [
        Job(name, "paper", seed, folder=folder)
        for name in ("pn", "svs", "dsvs")
        for seed in range(seeds)
    ]


@pytest.fixture(scope="module")
def serial(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("serial")
    results = Results(path / "results")
    rows = list(reproduce(jobs_in(folder), results, path / "runs"))
    return results, rows


def timeless(rows):
    return sorted((replace(row, minutes=0.0) for row in rows), key=lambda row: row.key)


def test_every_config_of_the_paper_is_there():
    for name in {name for entry in entries() for name in entry.configs}:
        config = read_config(shipped_configs() / f"{name}.yaml")
        assert config.steps is not None
        small = scaled(config, "small")
        assert small.steps == (1500 if "omniglot" in name else 3000)
        assert small.dataset in ("miniimagenet32", "omniglot-rotated")
    assert [len(configs(entries(f"table{n}"))) for n in (2, 3, 6)] == [16, 24, 16]
    with pytest.raises(ValueError, match="Unknown table or figure 'table7'"):
        entries("table7")
    assert len(entries("table4", column="1-shot cosine")) == 4
    assert len(entries("table2", row="PN + SVS", column="1-shot cosine")) == 1
    with pytest.raises(ValueError, match="Unknown column of table4 '1 shot'"):
        entries("table4", column="1 shot")


def test_small_keeps_the_ratios_of_the_schedule():
    full = TrainConfig(
        "images", backbone="conv4", scaler="d-avs", steps=20_000, lr_every=2000, metric="cosine"
    )
    small = scaled(full, "small", "other")
    assert (small.dataset, small.steps, small.lr_every) == ("other", 3000, 300)
    assert small.objective_options["aux_epochs"] == pytest.approx(150 * 0.15)
    for scaler, size in (("svs", 1), ("d-svs", 256)):
        full = replace(full, scaler=scaler)
        small = replace(scaled(full, "small"), backbone_options={"image_size": 32})
        fitted = with_scaler_ratios(full, small).model().scaler
        before = full.model().scaler
        assert fitted.size == size
        moved = before.lr * full.steps * full.n_query / before.size
        assert fitted.lr * small.steps * small.n_query / fitted.size == pytest.approx(moved)
        assert fitted.kl_weight / small.n_query == pytest.approx(before.kl_weight / full.n_query)
    paper = scaled(full, "paper")
    assert paper == replace(full, val_every=1000)  # a stated deviation, for the time it takes
    assert with_scaler_ratios(full, paper) == paper


@pytest.mark.parametrize("prior_sigma", [None, "sqrt"])
def test_small_keeps_the_weight_of_the_prior_of_d_avs(prior_sigma):
    full = TrainConfig(
        "images", backbone="conv4", scaler="d-avs", steps=20_000, lr_every=2000, metric="cosine",
        scaler_options={"prior_sigma": prior_sigma},
    )  # fmt: skip
    small = replace(scaled(full, "small"), backbone_options={"image_size": 32})

    def pull(config):
        """The weighted KL against the queries, for all entries at 100 + 50 and sigma as prior."""
        scaler = config.model().scaler
        loc = torch.full((scaler.size,), 150.0, dtype=torch.float64)
        q = torch.distributions.Normal(loc, torch.full_like(loc, scaler.prior_sigma))
        return scaler.penalty(q).item() / config.n_query

    assert pull(with_scaler_ratios(full, small)) == pytest.approx(pull(full))


def test_what_is_there_is_not_run_again(serial, folder, tmp_path):
    results, rows = serial
    assert missing(jobs_in(folder), results) == []
    assert timeless(results.rows("paper")) == timeless(rows)
    for row in rows:
        arrays = results.arrays(row)
        hits = arrays["hits"]
        assert arrays["val_step"].tolist() == [10, 20, 30, 40]
        assert arrays["val_accuracy"].max() == pytest.approx(row.val_accuracy)
        assert arrays["loc"].mean() == pytest.approx(row.scale_mean, rel=1e-2)
        assert ("scale_p50" in arrays) == (row.config == "dsvs")
        assert hits.shape == (SCALES["paper"].episodes,)
        assert hits.mean() / 12 == pytest.approx(row.accuracy)


def test_a_row_that_is_taken_out_comes_back_the_same(serial, folder, tmp_path):
    results, rows = Results(tmp_path / "results"), serial[1]
    shutil.copytree(serial[0].folder, results.folder)
    path = tmp_path / "results/paper.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]))
    (left,) = missing(jobs_in(folder), results)
    list(reproduce([left], results, tmp_path / "other"))  # trained anew, too
    assert timeless(results.rows("paper")) == timeless(rows)


def test_rows_of_another_precision_stand_beside(serial, folder, tmp_path):
    results = Results(tmp_path / "results")
    shutil.copytree(serial[0].folder, results.folder)
    job = replace(jobs_in(folder)[0], precision="bf16-mixed")
    assert missing([job], results) == [job]
    (row,) = reproduce([job], results, tmp_path / "runs")
    assert row.precision == "bf16-mixed"
    assert missing([job, *jobs_in(folder)], results) == []
    assert len(results.rows("paper")) == len(serial[1]) + 1
    assert len(Evidence(results, "paper").runs(job.config)) == 2  # float32's alone


def test_rows_of_another_folder_are_taken_once(serial, tmp_path):
    theirs, ours = serial[0], Results(tmp_path / "results")
    rows = theirs.rows("paper")
    ours.add(replace(rows[0], accuracy=0.5, commit="newer"), theirs.arrays(rows[0]))
    ours.add(replace(rows[1], accuracy=0.5, commit=""), theirs.arrays(rows[1]))
    assert ours.take(theirs) == len(rows) - 1
    assert ours.take(theirs) == 0
    taken = {row.key: row for row in ours.rows("paper")}
    assert taken[rows[0].key].accuracy == 0.5  # ours stays
    assert taken[rows[1].key] == rows[1]  # but for one that names no commit
    with pytest.raises(ValueError, match="Expected a folder of results"):
        ours.take(Results(tmp_path / "nothing"))


def test_rows_without_the_newer_columns_can_be_read(serial, tmp_path):
    lines = list(csv.DictReader((serial[0].folder / "paper.csv").read_text().splitlines()))
    old = [{k: v for k, v in row.items() if k not in ("precision", "commit")} for row in lines]
    with (tmp_path / "paper.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, old[0])
        writer.writeheader()
        writer.writerows(old)
    expected = [replace(row, commit="") for row in serial[0].rows("paper")]
    assert Results(tmp_path).rows("paper") == expected


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


def test_a_row_without_its_arrays_does_not_count(serial, folder, tmp_path):
    results, rows = Results(tmp_path / "results"), serial[1]
    shutil.copytree(serial[0].folder, results.folder)
    results.arrays_file(rows[0]).unlink()
    assert len(missing(jobs_in(folder), results)) == 1


def test_images_are_not_frozen(serial, folder):
    job = replace(jobs_in(folder)[0], scale="frozen")
    with pytest.raises(ValueError, match="Expected embeddings for the scale frozen, got images"):
        job.resolved()


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
    ],
)
def test_what_cannot_be_run_is_said_first(home, words, message, capsys):
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_row_of_another_config_does_not_count(serial, folder, tmp_path):
    other = tmp_path / "configs"
    shutil.copytree(folder, other)
    (other / "base.yaml").write_text(BASE.replace("steps: 40", "steps: 41"))
    assert len(missing(jobs_in(other), serial[0])) == 6


@pytest.mark.slow
def test_on_a_cluster_whose_worker_is_killed_the_table_is_the_same(serial, folder, tmp_path):
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
        done = list(reproduce_on(jobs_in(folder), results, runs, workers=3, scheduler=None))
    finally:
        over.set()
        killer.join()
    assert killed
    assert timeless(done) == timeless(rows)
    for row in rows:
        ours, theirs = results.arrays(row), serial[0].arrays(row)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_cluster_that_is_not_there(folder, tmp_path, as_user):
    with pytest.raises(ValueError, match="no Dask scheduler at tcp://127.0.0.1:1"):
        list(
            reproduce_on(
                jobs_in(folder)[:1],
                Results(tmp_path / "results"),
                tmp_path / "runs",
                workers=1,
                scheduler="tcp://127.0.0.1:1",
            )
        )


def test_tables_set_ours_beside_reported(serial):
    name = "miniimagenet/pn_cosine_5w1s"
    rows = [replace(row, config=name, dataset="miniimagenet") for row in serial[1][:2]]
    lines = {(line.entry.row, line.entry.column): line for line in table(entries("table2"), rows)}
    line = lines["PN", "1-shot cosine"]
    assert line.ours == pytest.approx(50 * (rows[0].accuracy + rows[1].accuracy))
    assert line.difference == pytest.approx(line.ours - 42.20)
    for other in ({"dataset": "letters"}, {"scale": "frozen"}):  # nothing to subtract from
        unlike = [replace(row, **other) for row in rows]
        assert {line.difference for line in table(entries("table2"), unlike)} == {None}
    assert line.half == pytest.approx(100 * t_interval([row.accuracy for row in rows])[1])
    name = "miniimagenet/svs_learned_cosine_5w1s"
    better = [replace(row, config=name, accuracy=row.accuracy + 0.01) for row in rows]
    column = table(entries("table2", column="1-shot cosine"), [*rows, *better])
    first, second, *_ = gains(column)
    assert first == Gain(None, None, None)
    assert (second.reported, second.ours) == (pytest.approx(48.43 - 42.20), pytest.approx(1.0))
    assert second.half == pytest.approx(0, abs=1e-9)
    assert lines["PN + SVS", "1-shot cosine"].ours is None
