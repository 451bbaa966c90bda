"""Several processes compute what one does; one that dies takes nothing with it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import TINY
from torch import nn

from varscale.backbones.shared_norm import share_batch_norm
from varscale.runs.logbook import read_metrics

pytestmark = pytest.mark.slow
STEPS = 50
OPTIONS = {
    **TINY,
    "tasks_per_step": 2,
    "val_every": 25,
    "val_episodes": 30,
    "checkpoint_every": 10,
}


def varscale(*arguments, launcher=("-m", "varscale")):
    return [sys.executable, *launcher, *map(str, arguments)]


def training(out, launcher=("-m", "varscale"), **options):
    settings = {**OPTIONS, **options, "out": out}
    words = [word for key, value in settings.items() for word in (f"--{key}", value)]
    return varscale("train", *words, launcher=launcher)


def finished(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


CASES = {
    "svs": {
        "preset": "reproduction",
        "scaler": "svs",
        "scaler_options.lr": 0.01,
        "scaler_options.learn_sigma": True,
    },
    "d-svs": {"scaler": "d-svs"},
    "d-avs": {"scaler": "d-avs"},
    "d-avs normal": {"preset": "reproduction", "scaler": "d-avs"},
    "tadam": {
        "preset": "reproduction",
        "scaler": "d-svs",
        "host": "tadam",
        "backbone": "resnet12",
        "backbone_options": '{"width": 0.0625}',
        "metric": "euclidean",
        "algorithm": "sgd",
        "lr": 0.002,
        "scaler_options.init": 10.0,
        "weight_decay": 5e-4,
        "clip": 1.0,
        "cotraining": "true",
        "cotraining_options": '{"batch_size": 12}',
    },
}


EVALUATED = ("svs", "tadam")
"""One host that embeds a split once, and one that embeds each task."""


@pytest.mark.parametrize("case", CASES)
def test_two_processes_equal_one_with_both_tasks(tiny_images, tmp_path, case):
    n = 25 if case == "tadam" else STEPS  # it is deep, and slow
    options = {**CASES[case], "steps": n, "precision": "64-true"}
    one, two = tmp_path / "one", tmp_path / "two"
    finished(training(one, **options))
    finished(training(two, **options, devices=2))
    rows = [read_metrics(path) for path in (one, two)]
    assert len(rows[0]) == len(rows[1]) == n
    for a, b in zip(*rows, strict=True):
        for name in a:
            if name != "seconds":  # Fabric hands the terms on in single precision
                assert b[name] == pytest.approx(a[name], rel=2e-6, abs=1e-6), (a["step"], name)

    ours, theirs = (json.loads((path / "result.json").read_text())["scale"] for path in (one, two))
    assert theirs == pytest.approx(ours, rel=1e-4)  # the search of relearning ends at 1e-4
    if case in EVALUATED:
        _scored_alike(two)


def _scored_alike(run):
    """Two processes score a run as one does."""
    scores = []
    for devices in (1, 2):
        words = ("eval", run, "--episodes", 101, "--n_query", 4, "--devices", devices, "--json")
        scores.append(json.loads(finished(varscale(*words)).stdout))
    for name in ("accuracy", "ci95", "nll", "ece", "brier"):
        assert scores[0][name] == pytest.approx(scores[1][name], abs=1e-6)
    assert scores[0]["per_class"] == scores[1]["per_class"]


def test_a_killed_worker(tiny_images, tmp_path):
    """It ends the run with a checkpoint to resume from; torchrun brings it back by itself."""
    options = {"scaler": "svs", "steps": 150, "devices": 2}
    finished(training(tmp_path / "whole", **options))
    weights = {_killed(tmp_path / by, by, options) for by in ("itself", "torchrun")}
    assert weights == {
        json.loads((tmp_path / "whole" / "result.json").read_text())["weights_sha256"]
    }


def _killed(folder, by, options):
    """Kill a worker of a run; the hash of the weights that it ends with."""
    folder.mkdir()
    run = folder / "run"
    launcher = ("-m", "varscale")
    if by == "torchrun":
        torchrun = ("torch.distributed.run", "--nproc_per_node", "2", "--max-restarts", "1")
        launcher = ("-m", *torchrun, "-m", "varscale")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(training(run, launcher, **options), stdout=log, stderr=log)
        while not any((run / "checkpoint").glob("*.json")):
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.01)
        os.kill(children(process.pid)[-1], signal.SIGKILL)
        status = process.wait(timeout=120)
    log = (folder / "log").read_text()
    if by == "itself":
        assert status == 1
        assert "A worker process died. The last checkpoint is that of step" in log
        assert "Traceback" not in log
        finished(varscale("resume", run))
    else:  # it may stop the other worker before that one misses the first
        assert status == 0, log
    assert [row["step"] for row in read_metrics(run)] == list(range(1, 151))
    return json.loads((run / "result.json").read_text())["weights_sha256"]


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def alone():
    """A group of one process."""
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("shape", [(6, 3, 4, 4), (6, 3)])
def test_shared_batch_norm_of_one_process_is_batch_norm(alone, generator, shape):
    ours, theirs = (nn.BatchNorm2d(3).double() if len(shape) == 4 else nn.BatchNorm1d(3).double()
                    for _ in range(2))  # fmt: skip
    share_batch_norm(ours)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    upstream = torch.randn(shape, generator=generator, dtype=torch.float64)
    results = []
    for norm in (ours, theirs):
        with torch.no_grad():
            norm.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))
            norm.bias.copy_(torch.tensor([0.1, 0.0, -0.3]))
        leaf = x.clone().requires_grad_()
        out = norm(leaf)
        (out * upstream).sum().backward()
        evaluated = norm.eval()(x)
        results.append([out, leaf.grad, norm.weight.grad, norm.bias.grad, norm.running_mean,
                        norm.running_var, norm.num_batches_tracked, evaluated])  # fmt: skip
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
