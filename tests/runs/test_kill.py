"""Killed without warning at random steps, a run ends at the same weights.

    VARSCALE_KILLS=20 make test ARGS=tests/test_kill.py

makes twenty kills; the suite makes three.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("lightning_fabric", reason="needs the extra 'train'")

STEPS = 300
KILLS = int(os.environ.get("VARSCALE_KILLS", "3"))
SCALERS = {
    "svs": [],
    "d-svs": ["--preset", "reproduction", "--scaler_options.init", "10"],
    "d-avs": ["--scaler_options.hidden", "20", "--objective_options.aux_epochs", "1"],
}
OPTIONS = {
    "dataset": "tiny-images",
    "backbone": "tiny",
    "metric": "cosine",
    "n_way": 4,
    "n_query": 5,
    "steps": STEPS,
    "val_every": 25,
    "val_episodes": 50,
    "val_way": 3,
    "checkpoint_every": 7,
    "accelerator": "cpu",
}


def command(*arguments):
    return [sys.executable, "-m", "varscale", *map(str, arguments)]


def training(out, scaler):
    options = [word for key, value in OPTIONS.items() for word in (f"--{key}", value)]
    return command("train", *options, "--scaler", scaler, *SCALERS[scaler], "--out", out)


def steps_done(out):
    try:
        return (out / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def kill_at(arguments, out, step):
    """Start, and kill when a step has been written; returns how many were."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and steps_done(out) < step:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return steps_done(out)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_killed_at_random_steps_a_run_ends_the_same(tiny_images, tmp_path, number):
    scaler = list(SCALERS)[number]
    kills = len(range(number, KILLS, 3))
    generator = random.Random(f"{scaler} {KILLS}")
    whole, run = tmp_path / "whole", tmp_path / "run"
    subprocess.run(training(whole, scaler), check=True, capture_output=True)
    targets = sorted(generator.sample(range(1, STEPS - 100), kills))  # a kill may come late
    arguments = training(run, scaler)
    for target in targets:
        assert target <= kill_at(arguments, run, target) < STEPS
        arguments = command("resume", run)
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected, result = (json.loads((p / "result.json").read_text()) for p in (whole, run))
    assert result["weights_sha256"] == expected["weights_sha256"]
    for folder in ("best", "checkpoint"):
        names = sorted(p.name for p in (whole / folder).iterdir())
        assert names == sorted(p.name for p in (run / folder).iterdir())
        for name in names:
            if name.endswith("safetensors"):
                assert (whole / folder / name).read_bytes() == (run / folder / name).read_bytes()
    assert steps_done(run) == STEPS
