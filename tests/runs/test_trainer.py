"""Exact resume, whatever interrupts; and what a step does."""

import errno
import itertools
import json
import math
import os
import shutil
import signal
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from short_runs import SCALERS, config_of, new_run

import varscale.runs.trainer
from varscale.core.interrupted import Interrupted
from varscale.data import Dataset
from varscale.learn.step import clip_gradients
from varscale.runs import TrainConfig, load
from varscale.runs.checkpoint import newest_checkpoint, weights_hash
from varscale.runs.launch import Signals, launch
from varscale.runs.logbook import read_metrics
from varscale.runs.trainer import Trainer, train

TADAM = {
    "host": "tadam",
    "backbone": "resnet12",
    "backbone_options": {"width": 1 / 16},
    "metric": "euclidean",
    "tasks_per_step": 2,
    "algorithm": "sgd",
    "lr": 0.1,
    "weight_decay": 5e-4,
    "clip": 1.0,
    "cotraining": True,
    "cotraining_options": {"decay": 0.5, "stages": 3},
}


@pytest.fixture(scope="module", autouse=True)
def few_first_tasks():
    """Two tasks tell the initial scale, for speed: most of these runs begin more than once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varscale.runs.trainer, "FIRST_TASKS", 2)
        yield


def finish(run):
    """Train to the end, from wherever the run stands."""
    for _ in train(run.path, run.config):
        pass
    return run.result["weights_sha256"]


@pytest.fixture(scope="module", params=SCALERS)
def uninterrupted(request, tiny_images, tmp_path_factory):
    """A config, its run without interruption, and the final hash."""
    config = config_of(request.param)
    run = new_run(tmp_path_factory.mktemp("whole") / "run", config)
    return config, run, finish(run)


def untimed(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(run.path)]


@pytest.mark.parametrize("stops", [[1], [3], [5, 5], [2, 4, 11], [12]])
def test_stopping_anywhere_changes_nothing(uninterrupted, tmp_path, stops):
    config, whole, expected = uninterrupted
    run = new_run(tmp_path / "run", config)
    for stop in stops:
        steps = train(run.path, run.config)
        for metrics in steps:
            if metrics["step"] >= stop:
                break
        steps.close()  # no checkpoint is written for it: as if killed
        assert run.result is None
    assert finish(run) == expected
    assert untimed(run) == untimed(whole)
    assert [row["step"] for row in read_metrics(run.path)] == list(range(1, 13))
    assert weights_hash(load(run.path)) == weights_hash(load(whole.path))


def test_a_finished_run_stays_as_it_is(uninterrupted):
    _, run, expected = uninterrupted
    before = (run.path / "metrics.jsonl").read_text()
    assert finish(run) == expected
    assert (run.path / "metrics.jsonl").read_text() == before


@pytest.mark.parametrize("file", ["json", "safetensors"])
def test_an_altered_checkpoint_is_not_used(uninterrupted, tmp_path, file):
    config, _, expected = uninterrupted
    run = new_run(tmp_path / "run", config)
    for metrics in train(run.path, run.config):
        if metrics["step"] == 7:
            break
    folder = run.path / "checkpoint"
    assert sorted(p.stem for p in folder.glob("*.json")) == ["00000003", "00000006"]
    flip(folder / f"00000006.{file}")
    with pytest.warns(UserWarning, match="step 6 .* is damaged"):
        assert newest_checkpoint(folder).step == 3
    with pytest.warns(UserWarning, match="step 6 .* is damaged"):
        assert finish(run) == expected
    shutil.rmtree(run.path / "checkpoint")
    (run.path / "result.json").unlink()
    assert finish(run) == expected  # from the very beginning


def flip(path, place=None):
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def test_any_altered_byte_of_a_checkpoint_is_found(uninterrupted, tmp_path):
    _, run, _ = uninterrupted
    folder = tmp_path / "checkpoint"
    shutil.copytree(run.path / "checkpoint", folder)
    (folder / "00000009.json").unlink()
    for suffix, stride in (("json", 7), ("safetensors", 97)):
        path = folder / f"00000012.{suffix}"
        original = path.read_bytes()
        for place in range(0, len(original), stride):
            flip(path, place)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = newest_checkpoint(folder)
            assert found is None or json.loads(path.read_text()) == json.loads(original), place
            path.write_bytes(original)
    assert newest_checkpoint(folder).step == 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_step_and_ends(uninterrupted, tmp_path, number):
    config, _, expected = uninterrupted
    run = new_run(tmp_path / "run", config)
    before = signal.getsignal(number)  # a shell's background job ignores SIGINT
    steps = train(run.path, run.config)
    for _ in range(4):
        next(steps)
    os.kill(os.getpid(), number)
    assert next(steps)["step"] == 5
    with pytest.raises(Interrupted, match="Stopped after step 5 of 12, which is saved") as stopped:
        next(steps)
    assert stopped.value.status == 128 + number
    assert newest_checkpoint(run.path / "checkpoint").step == 5
    assert signal.getsignal(number) == before
    assert finish(run) == expected


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5, 6])
def test_a_full_disk_costs_nothing_that_was_saved(tiny_images, tmp_path, monkeypatch, call):
    config = config_of("svs/normal")
    expected = finish(new_run(tmp_path / "whole", config))
    run = new_run(tmp_path / "run", config)
    real, calls = os.fsync, itertools.count(1)

    def full(handle):
        if next(calls) >= 2 + call:  # the metrics are there first
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as error:
            finish(run)
        assert error.value.errno == errno.ENOSPC
        assert Path(error.value.filename).parent.parent == run.path
    left = [p.name for p in run.path.rglob("*") if p.name.endswith(".new")]
    assert not left
    assert finish(run) == expected


def test_a_rate_that_is_too_high_names_term_and_step(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of(lr=1e30, checkpoint_every=1))
    with pytest.raises(Interrupted, match=r"Step \d+: .*lower one: .*--lr 1e\+29 ") as stopped:
        finish(run)
    assert stopped.value.status == 1
    last = newest_checkpoint(run.path / "checkpoint")
    assert last is None or all(t.isfinite().all() for t in last.tensors.values())


def test_a_loss_that_is_not_finite_stops_at_once(tiny_images, tmp_path):
    options = {"family": "normal", "init": 3e38}
    run = new_run(tmp_path / "run", config_of(scaler_options=options, checkpoint_every=1))
    with pytest.raises(Interrupted, match="Step 1: kl became inf"):
        finish(run)


def test_the_rates_follow_the_schedule(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of("d-avs", lr_every=4, lr_milestones=[6], lr=0.01))
    rates = [metrics["lr"] for metrics in train(run.path, run.config)]
    expected = [0.01] * 4 + [0.005] * 2 + [0.0025] * 2 + [0.00125] * 4
    assert rates == pytest.approx(expected, rel=1e-12)
    for scaler, shown, rate in (("svs/normal", 0.01, 0.01 * 12), ("svs", 0.02, 0.02)):
        run = new_run(tmp_path / f"own {rate}", config_of(scaler, lr_every=4))
        data = Dataset.open("tiny-images")
        trainer = Trainer(run, run.config, launch(1, accelerator="cpu"), data)
        own = trainer.optimizers[1].param_groups[0]
        rows = [trainer.step(step) for step in (0, 4, 8)]
        assert [row["lr"] for row in rows] == [1e-3, 5e-4, 2.5e-4]
        assert {row["lr_scaler"] for row in rows} == {shown}
        assert own["params"][0] is trainer.model.scaler.loc
        assert own["lr"] == pytest.approx(rate)  # a scaler's own rate is constant


@pytest.mark.parametrize("scaler", ["d-svs", "d-svs/normal"])
def test_sgd_with_momentum_and_clipping_resumes_too(tiny_images, tmp_path, scaler):
    options = {"algorithm": "sgd", "lr": 0.05, "weight_decay": 1e-3, "clip": 0.1}
    config = config_of(scaler, tasks_per_step=2, val_every=0, **options)
    expected = finish(new_run(tmp_path / "whole", config))
    run = new_run(tmp_path / "run", config)
    for metrics in train(run.path, run.config):
        if metrics["step"] == 8:
            break
    assert finish(run) == expected
    assert run.result["best_step"] == 12  # without validation the last model is the best
    other = new_run(tmp_path / "global", config_of(scaler, **{**options, "clip_by": "global"}))
    assert finish(other) != expected


@pytest.mark.parametrize("scaler", ["svs", "d-avs", "svs/normal", "d-avs/normal"])
def test_bfloat16_resumes_too(tiny_images, tmp_path, scaler):
    config = config_of(scaler, precision="bf16-mixed")
    whole = new_run(tmp_path / "whole", config)
    expected = finish(whole)
    assert expected != finish(new_run(tmp_path / "float32", config_of(scaler)))
    run = new_run(tmp_path / "run", config)
    for metrics in train(run.path, run.config):
        if metrics["step"] == 7:
            break
    assert finish(run) == expected
    assert untimed(run) == untimed(whole)
    assert weights_hash(load(run.path)) == weights_hash(load(whole.path))


@pytest.mark.parametrize("scaler", ["d-svs", "d-svs/normal"])
def test_tadam_with_cotraining_resumes_too(tiny_images, tmp_path, scaler):
    config = config_of(scaler, **TADAM)
    whole = new_run(tmp_path / "whole", config)
    expected = finish(whole)
    assert 0 < sum("cotraining_loss" in row for row in read_metrics(whole.path)) < 12
    run = new_run(tmp_path / "run", config)
    for stop in (5, 8):
        steps = train(run.path, run.config)
        for metrics in steps:
            if metrics["step"] >= stop:
                break
        steps.close()
    assert finish(run) == expected
    assert untimed(run) == untimed(whole)
    assert weights_hash(load(run.path)) == weights_hash(load(whole.path))


@pytest.mark.parametrize("by", ["variable", "global"])
def test_clipping_by_hand(by):
    weights = [torch.nn.Parameter(torch.zeros(n)) for n in (2, 3, 1)]
    gradients = [[3.0, 4.0], [0.0, 0.3, 0.4], [12.0]]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = torch.tensor(gradient)
    unused = torch.nn.Parameter(torch.zeros(1))
    clip_gradients(torch.optim.SGD([*weights, unused], lr=1.0), 1.0, by)
    if by == "variable":
        expected = [[0.6, 0.8], [0.0, 0.3, 0.4], [1.0]]
    else:
        norm = math.sqrt(25 + 0.25 + 144)
        expected = [[g / norm for g in gradient] for gradient in gradients]
    for weight, gradient in zip(weights, expected, strict=True):
        assert weight.grad.tolist() == pytest.approx(gradient, rel=1e-5)


def test_the_best_model_is_the_one_of_the_best_validation(uninterrupted):
    _, run, _ = uninterrupted
    rows = [row for row in read_metrics(run.path) if "val_accuracy" in row]
    assert [row["step"] for row in rows] == [5, 10, 12]
    best = max(rows, key=lambda row: row["val_accuracy"])
    assert run.result["best_step"] == best["step"]
    assert run.result["val_accuracy"] == best["val_accuracy"]
    kept = sorted(int(path.stem) for path in (run.path / "best").glob("*.json"))
    assert best["step"] in kept
    assert kept[-1] == (13 if run.config.relearn else best["step"])  # relearned after all steps


def test_the_best_model_is_loaded_not_the_last(tiny_images, tmp_path):
    config = config_of("d-svs/normal", lr=0.5, val_every=1, steps=8)
    run = new_run(tmp_path / "run", config)
    finish(run)
    rows = read_metrics(run.path)
    accuracies = [row["val_accuracy"] for row in rows]
    best = accuracies.index(max(accuracies)) + 1  # the first of equals
    assert run.result["best_step"] == best < 8
    tensors = newest_checkpoint(run.path / "best").tensors
    loaded = load(run.path).state_dict()
    assert all(torch.equal(loaded[name.removeprefix("model/")], t) for name, t in tensors.items())
    assert weights_hash(load(run.path)) != run.result["weights_sha256"]


def test_damaged_checkpoints_do_not_keep_good_ones_away(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of(steps=12))
    expected = finish(run)
    (run.path / "result.json").unlink()
    folder = run.path / "checkpoint"
    for path in folder.glob("*.safetensors"):
        flip(path)
    steps = train(run.path, run.config)
    with pytest.warns(UserWarning, match="is damaged") as warned:
        next(steps)
    assert len([w for w in warned if "is damaged" in str(w.message)]) == 2
    for metrics in steps:
        if metrics["step"] == 4:
            break
    steps.close()
    assert newest_checkpoint(folder).step == 3
    assert finish(run) == expected


def test_a_best_model_of_a_step_that_is_undone_is_forgotten(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of(val_every=1, checkpoint_every=5))
    for metrics in train(run.path, run.config):
        if metrics["step"] == 9:
            break
    Trainer(run, run.config, launch(1, accelerator="cpu"), Dataset.open("tiny-images"))
    state = newest_checkpoint(run.path / "checkpoint")
    assert newest_checkpoint(run.path / "best").step == state.info["best_step"] <= 5


def test_a_second_interrupt_ends_at_once():
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_are_warned_of(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of())
    next(train(run.path, run.config)).clear()
    for metrics in train(run.path, run.config):
        if metrics["step"] == 4:
            break
    provenance = json.loads((run.path / "provenance.json").read_text())
    provenance["machine"]["threads"] += 1
    (run.path / "provenance.json").write_text(json.dumps(provenance))
    with pytest.warns(UserWarning, match="began with .* threads"):
        next(train(run.path, run.config))


def test_what_is_not_finite_is_never_saved(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of())
    trainer = Trainer(run, run.config, launch(1, accelerator="cpu"), Dataset.open("tiny-images"))
    with torch.no_grad():
        trainer.model.scaler.loc.fill_(torch.nan)
    with pytest.raises(Interrupted, match="Step 3: scaler.loc is no longer finite"):
        trainer.save("checkpoint", 3)
    assert newest_checkpoint(run.path / "checkpoint") is None


def test_another_config_is_refused(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of())
    other = replace(run.config, lr=0.5)
    with pytest.raises(ValueError, match="The config is not that of"):
        next(train(run.path, other))


def test_selecting_by_training_accuracy(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of(select_by="training", steps=15))
    finish(run)
    rows = read_metrics(run.path)
    sums = {end: sum(row["accuracy"] for row in rows[end - 5 : end]) for end in (5, 10, 15)}
    assert run.result["best_step"] == max(sums, key=sums.get)


def test_a_sampled_scale_in_validation_gives_another_loss(tiny_images, tmp_path):
    losses = []
    for val_alpha in ("mean", "sample"):
        options = {"family": "normal", "sigma": 5.0, "init": 10.0}
        config = config_of("d-svs", scaler_options=options, val_alpha=val_alpha, steps=5)
        run = new_run(tmp_path / val_alpha, config)
        finish(run)
        losses.append(read_metrics(run.path)[-1]["val_nll"])
    assert losses[0] != losses[1]


def test_embeddings_train_a_scaler_alone(points, tmp_path):
    config = TrainConfig(
        dataset="points",
        scaler="svs",
        metric="cosine",
        n_way=3,
        n_query=5,
        steps=60,
        val_every=0,
        tasks_per_step=4,
        scaler_options={"family": "normal", "init": 1.0, "lr": 0.05, "kl_weight": 0.0},
    )
    run = new_run(tmp_path / "run", config)
    finish(run)
    rows = read_metrics(run.path)
    assert run.config.backbone == "identity"
    assert rows[-1]["scale_mean"] > 2
    first, last = (sum(r["nll"] for r in part) for part in (rows[:10], rows[-10:]))
    assert last < first


def test_nothing_to_learn_is_a_run_without_steps(points, tmp_path):
    config = TrainConfig(
        dataset="points",
        scaler="fixed",
        metric="cosine",
        n_way=3,
        n_query=5,
        val_way=2,
        scaler_options={"alpha": 7.0},
    )
    run = new_run(tmp_path / "run", config)
    finish(run)
    assert run.result["steps"] == 0
    assert load(run.path).scaler.loc.item() == 7.0


def test_only_one_process_trains_a_run(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of())
    steps = train(run.path, run.config)
    next(steps)
    with pytest.raises(ValueError, match="Another process is training"):
        next(train(run.path, run.config))
    steps.close()
    finish(run)


def test_tensorboard_events_are_there(uninterrupted):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, run, _ = uninterrupted
    events = EventAccumulator(str(run.path))
    events.Reload()
    assert {"train/nll", "train/kl", "scale/mean", "scale/spread", "val/accuracy"} <= set(
        events.Tags()["scalars"]
    )
