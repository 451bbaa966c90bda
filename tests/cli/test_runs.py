"""The life of a run at the command line, and every way to get it wrong."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

import varscale
from varscale.cli.main import main
from varscale.core.interrupted import Interrupted
from varscale.evaluation import evaluate

TRAIN = [
    "train", "--dataset", "tiny-images", "--backbone", "tiny", "--metric", "cosine",
    "--n_way", "3", "--n_query", "4", "--val_every", "5", "--val_episodes", "20",
    "--accelerator", "cpu", "--test_query", "4",
]  # fmt: skip


def run(*arguments):
    try:
        return main([str(a) for a in arguments])
    except SystemExit as stop:
        return stop.code


@pytest.fixture(scope="module")
def runs(tiny_images, tmp_path_factory):
    """Two methods, two seeds each."""
    pytest.importorskip("lightning_fabric", reason="needs the extra 'train'")
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        for name, more in {"pn": [], "svs": ["--scaler", "svs"]}.items():
            out = root / name / f"seed{seed}"
            assert run(*TRAIN, *more, "--steps", "6", "--seed", seed, "--out", out) == 0
    return root


@pytest.fixture
def a_run(runs, tmp_path):
    """A copy to be spoilt."""
    shutil.copytree(runs / "svs" / "seed0", tmp_path / "run")
    return tmp_path / "run"


def test_a_run_directory_has_what_it_promises(runs):
    path = runs / "svs" / "seed0"
    names = {p.name for p in path.iterdir()}
    assert {"config.yaml", "metrics.jsonl", "checkpoint", "best", "result.json"} <= names
    assert any(name.startswith("events.out") for name in names)
    provenance = json.loads((path / "provenance.json").read_text())
    assert set(provenance) == {"config", "dataset", "split", "episodes", "versions", "machine"}
    assert set(provenance["episodes"]) == {"train", "val"}
    config = yaml.safe_load((path / "config.yaml").read_text())
    assert (config["steps"], config["lr_every"], config["val_way"]) == (6, 2000, 3)


def test_identical_episodes_for_all_methods(runs):
    hashes = [
        json.loads((runs / name / "seed0" / "provenance.json").read_text())["episodes"]
        for name in ("pn", "svs")
    ]
    assert hashes[0] == hashes[1]


def test_eval_prints_and_stores_its_figures(runs, capsys):
    path = runs / "svs" / "seed0"
    assert run("eval", path, "--episodes", "50", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert {"accuracy", "ci95", "nll", "ece", "brier", "per_class"} <= set(report)
    assert (report["episodes"], report["n_way"], report["dataset"]) == (50, 3, "tiny-images")
    stored = path / "eval" / "tiny-images-test-3w1s4q-50-seed0-samples0.json"
    assert json.loads(stored.read_text())["accuracy"] == report["accuracy"]
    assert stored.with_suffix(".safetensors").is_file()
    assert run("eval", path, "--episodes", "50") == 0
    assert f"{100 * report['accuracy']:.2f} ± {100 * report['ci95']:.2f}" in capsys.readouterr().out

    path = runs / "svs" / "seed1"  # trained with another seed, tested on the same tasks
    assert run("eval", path, "--episodes", "50", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    model = varscale.load(path)
    split = varscale.data.Dataset.open("tiny-images")["test"]
    sampler = varscale.EpisodeSampler(split.labels, 3, 1, 4, stream="test")
    assert float(evaluate(model, split, sampler, episodes=50).accuracy.mean()) == report["accuracy"]


def test_eval_at_another_way_shot_and_query(runs, capsys):
    path = runs / "svs" / "seed0"
    words = ("--n_way", "4", "--n_shot", "[1,2,3,1]", "--n_query", "5", "--queries", "random")
    assert run("eval", path, "--episodes", "20", *words, "--split", "val", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["n_way"], report["n_shot"], report["split"]) == (4, [1, 2, 3, 1], "val")


def test_eval_of_several_seeds(runs, capsys):
    assert run("eval", runs / "svs", "--episodes", "20", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["seeds"]["n"] == len(report["runs"]) == 2
    assert report["seeds"]["t95"] == pytest.approx(
        report["seeds"]["ci95"] * 12.706 / 1.96, rel=1e-3
    )
    assert run("eval", runs / "svs", "--episodes", "20") == 0
    assert "over 2 runs" in capsys.readouterr().out


def test_compare_is_paired(runs, capsys):
    a, b = runs / "pn" / "seed0", runs / "svs" / "seed0"
    assert run("compare", a, b, "--episodes", "40", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    (pair,) = report["pairs"]
    assert pair["difference"] == pytest.approx(pair["b"]["accuracy"] - pair["a"]["accuracy"])
    assert pair["nll_difference"] == pytest.approx(pair["b"]["nll"] - pair["a"]["nll"])
    per_task = []
    for path in (a, b):
        assert run("eval", path, "--episodes", "40") == 0
        (stored,) = (path / "eval").glob("*-40-*.safetensors")
        per_task.append(load_file(stored)["accuracy"])
    capsys.readouterr()
    gap = per_task[1] - per_task[0]
    assert pair["ci95"] == pytest.approx(1.96 * float(gap.std()) / 40**0.5)
    assert run("compare", a, a, "--episodes", "40", "--json") == 0
    (same,) = json.loads(capsys.readouterr().out)["pairs"]
    assert (same["difference"], same["ci95"]) == (0.0, 0.0)
    assert run("compare", runs / "pn", runs / "svs", "--episodes", "40") == 0
    assert "over 2 runs" in capsys.readouterr().out


def test_compare_says_what_is_not_finished(runs, a_run, capsys):
    (a_run / "result.json").unlink()
    assert run("compare", runs / "pn" / "seed0", a_run, "--episodes", "20") == 0
    assert f"Not finished: {a_run}; this is the best model" in " ".join(
        capsys.readouterr().out.split()
    )


def test_resume_of_a_finished_run_says_what_came_out(a_run, capsys):
    before = json.loads((a_run / "result.json").read_text())
    assert run("resume", a_run, "--json") == 0
    after = json.loads(capsys.readouterr().out)
    assert after["weights_sha256"] == before["weights_sha256"]
    assert run("resume", a_run) == 0
    assert "is finished; nothing is left to train" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_resume_after_a_damaged_checkpoint_warns_in_one_line(a_run, capsys):
    (a_run / "result.json").unlink()
    newest = a_run / "checkpoint" / "00000006.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert run("resume", a_run) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(lines) == 1
    assert "The checkpoint of step 6" in lines[0]


def set_json(path, **changes):
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("command", ["resume", "eval"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: (p / "config.yaml").unlink(), "Expected a run directory"),
        (
            lambda p: set_json(p / "provenance.json", versions={"varscale": "9.9.0"}),
            "by varscale 9.9",
        ),
        (lambda p: set_json(p / "provenance.json", dataset="0" * 64), "is not the one that"),
        (lambda p: (p / "provenance.json").write_text("{"), "is damaged"),
        (lambda p: (p / "config.yaml").write_text("dataset: glyphs\n"), "was altered"),
        (lambda p: (p / "config.yaml").write_text("dataset: ["), "cannot be read"),
        (lambda p: (p / "config.yaml").write_text("lr: 1\n"), "cannot be read"),
    ],
    ids=range(7),
)
def test_a_run_that_is_not_as_it_was_is_refused(a_run, capsys, command, spoil, message):
    spoil(a_run)
    assert run(command, a_run) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n_shots", "5"], "Did you mean --n_shot?"),
        (["--lr", "high"], "lr: expected a number, got high"),
        (["--lr_milestones", "[a]"], "lr_milestones: expected a whole number, got a."),
        (["--n_shot", "[a]"], "n_shot: expected a whole number, got a."),
        (["--metric", "cosin"], "metric: expected euclidean or cosine or dot or norm, got cosin"),
        (["--dataset", "nowhere"], "There is no prepared dataset 'nowhere'"),
        (["--n_way", "50"], "Expected at least 50 classes for 50-way tasks, got 7"),
        (["--scaler", "svs", "--scaler_options.rate", "1"], "Did you mean"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--scaler", "svs", "--scaler_options.init", "abc"], "Expected a number as the option"),
        (["--scaler", "d-avs", "--scaler_options.hidden", "-3"], "value that it cannot have"),
        (["--accelerator", "mps"], "There is no mps device here"),
        (["--devices", "9999", "--tasks_per_step", "9999"], "on this machine, got 9999"),
    ],
)
def test_wrong_options_of_train(tiny_images, tmp_path, as_user, capsys, arguments, message):
    if message == "Did you mean":
        message = "Unknown option of scaler 'svs': 'rate'"
    assert run(*TRAIN, *arguments, "--out", tmp_path / "run") == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset: tiny-images\nn_shots: 3\n", "unknown key 'n_shots'. Did you mean n_shot?"),
        ("dataset: tiny-images\nlr: high\n", "lr: expected a number, got high"),
        ("n_way: 3\n", "the option --dataset is required"),
        ("dataset: [", "is not a YAML file of keys and values. Look at line 1, column"),
        ("", "is not a YAML file of keys and values"),
        ("- 3\n", "config"),
    ],
)
def test_wrong_config_files(tmp_path, capsys, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert run("train", "--config", path, "--out", tmp_path / "run") == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_a_run_directory_that_exists_is_left_alone(a_run, capsys):
    before = sorted(p.stat().st_mtime_ns for p in a_run.rglob("*"))
    assert run(*TRAIN, "--out", a_run) == 2
    assert f"varscale resume {a_run}" in capsys.readouterr().err
    assert sorted(p.stat().st_mtime_ns for p in a_run.rglob("*")) == before


def test_divergence_is_said_in_one_line(tiny_images, tmp_path, capsys):
    out = tmp_path / "run"
    assert run(*TRAIN, "--lr", "1e30", "--steps", "20", "--out", out) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("varscale train: Step ")
    again = f"varscale train --config {out}/config.yaml --lr 1e+29 --out {out}-2."
    assert f"Train again from step 0 with a lower one: {again}" in last
    out = tmp_path / "scaled"
    words = ("--scaler", "svs", "--preset", "reproduction", "--lr", "1e30", "--steps", "20")
    assert run(*TRAIN, *words, "--out", out) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    words = last.partition("lower one: varscale ")[2].partition(". (")[0].split()
    assert "--scaler_options.lr" in words
    assert run(*words, "--steps", "1", "--lr", "1e-3") == 0  # the command can be run as it is


def test_a_full_disk_is_said_in_one_line(tiny_images, tmp_path, capsys, monkeypatch):
    import errno

    real = os.fsync

    def full(handle):
        if "checkpoint" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    assert run(*TRAIN, "--steps", "3", "--out", tmp_path / "run") == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("varscale train: No space left on device: ")
    monkeypatch.undo()
    assert run("resume", tmp_path / "run") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "nowhere"], "Expected a run directory, or a folder of them, got nowhere"),
        (["resume", "nowhere"], "Expected a run directory, got nowhere"),
        (["compare", "nowhere", "nowhere"], "Expected a run directory"),
    ],
)
def test_no_run_there(arguments, message, capsys):
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--episodes", "1"], "Expected episodes >= 2"),
        (["--n_way", "9"], "Expected at least 9 classes for 9-way tasks, got 4"),
        (["--dataset", "points"], "was trained on items of [8, 8, 1]; points has [6]"),
        (["--samples", "-1"], "Expected samples >= 0"),
        (["--n_way", "0"], "at least 2 classes per task, got n_way=0"),
        (["--n_query", "0"], "Expected n_query >= 1, got 0"),
        (["--devices", "-1"], "Expected devices >= 1, got -1"),
        (["--devices", "9999"], "devices on this machine, got 9999"),
    ],
)
def test_wrong_options_of_eval(a_run, points, capsys, arguments, message):
    assert run("eval", a_run, *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_folder_of_unlike_runs_is_refused(runs, capsys):
    mixed = runs.parent / "mixed"
    for name in ("pn", "svs"):
        shutil.copytree(runs / name / "seed0", mixed / name)
    assert run("eval", mixed) == 2
    assert "that differ in their seeds alone, got pn, svs" in capsys.readouterr().err
    shutil.rmtree(mixed / "pn")
    shutil.copytree(mixed / "svs", mixed / "again")
    assert run("compare", mixed, mixed) == 2


def test_without_its_best_model_a_run_says_so(a_run, capsys):
    shutil.rmtree(a_run / "best")
    assert run("eval", a_run) == 2
    assert "best is missing or damaged. Train again" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("line", ["5", "{}", '{"step": "a"}', "garbage", "\udcff"])
def test_a_line_that_is_none_is_left_out_of_the_metrics(a_run, capsys, line):
    (a_run / "result.json").unlink()
    path = a_run / "metrics.jsonl"
    rows = path.read_text().splitlines()
    rows[2] = line
    path.write_bytes("\n".join(rows).encode(errors="surrogateescape") + b"\n")
    assert run("resume", a_run) == 0
    assert "metrics.jsonl lacks 1 steps" in capsys.readouterr().err
    assert len(path.read_text().splitlines()) == 5


@pytest.mark.filterwarnings("default")
def test_an_evaluation_that_cannot_be_stored_is_still_printed(a_run, capsys):
    shutil.rmtree(a_run / "eval", ignore_errors=True)
    (a_run / "eval").write_text("in the way")
    assert run("eval", a_run, "--episodes", "20", "--json") == 0
    captured = capsys.readouterr()
    assert "accuracy" in json.loads(captured.out)
    assert "The figures are not stored" in captured.err


def test_embeddings_replace_nothing_but_embeddings(a_run, tmp_path, capsys):
    path = tmp_path / "points.npz"
    for _ in range(2):
        assert run("embed", a_run, path) == 0
    with np.load(path) as points:
        assert len(points["embeddings"]) == len(points["labels"])
    with np.load(path) as points:
        np.savez(path, **points, clusters=np.zeros(3))  # somebody added to ours
    before = path.read_bytes()
    assert run("embed", a_run, path) == 2
    assert "or embeddings that varscale wrote, got" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_seeds_must_match(runs, capsys):
    assert run("compare", runs / "pn", runs / "svs" / "seed0") == 2
    assert "Expected the same seeds on both sides" in capsys.readouterr().err


def test_demo_makes_the_table_and_the_plots_and_never_twice(tmp_path, capsys):
    words = ("demo", "--out", tmp_path / "demo", "--steps", "2", "--episodes", "20")
    assert run(*words) == 0
    out = capsys.readouterr().out
    methods = {"fixed 1", "fixed 10", "fixed 100", "SVS", "D-SVS", "D-AVS"}
    assert all(name in out for name in (*methods, "Best of the grid"))
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 10_000
    assert "Worst tasks" in (tmp_path / "demo" / "report.html").read_text()
    before = (tmp_path / "demo" / "svs" / "metrics.jsonl").stat().st_mtime_ns
    assert run(*words, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["methods"]) == methods
    assert report["best_of_grid"] in methods
    assert (tmp_path / "demo" / "svs" / "metrics.jsonl").stat().st_mtime_ns == before
    assert run("demo", "--out", tmp_path / "demo", "--steps", "3") == 2
    assert "was made with other settings" in capsys.readouterr().err
    for name in ("report.html", "demo.png"):
        (tmp_path / "demo" / name).write_text("mine")
        assert run(*words) == 2
        assert f"{name}, which is neither" in capsys.readouterr().err
        (tmp_path / "demo" / name).unlink()


@pytest.mark.parametrize(
    ("status", "said"), [(130, r"Stopped while .* Repeat the command"), (1, "Step 1: NaN")]
)
def test_a_demo_that_is_stopped_says_how_it_goes_on(tmp_path, capsys, monkeypatch, status, said):
    def stop(path, config):
        raise Interrupted("Step 1: NaN", status)

    monkeypatch.setattr("varscale.cli.demo.train_with_progress", stop)
    assert run("demo", "--out", tmp_path / "demo", "--steps", "2", "--episodes", "20") == status
    assert re.search(said, capsys.readouterr().err)


def test_doctor_looks_around(capsys, monkeypatch):
    assert run("doctor", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["packages"]["torch"].startswith("2.")
    assert "cpu" in found["devices"]
    monkeypatch.setattr("varscale.cli.doctor.version", lambda name: "1.0+cpu")
    assert run("doctor") == 0
    assert "conflict: torchvision beside a CPU build" in capsys.readouterr().out
