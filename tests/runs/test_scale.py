"""A run's scale: where it begins, where it ends, and what the validation classes say of it."""

import json
from dataclasses import replace

import pytest
import torch
from conftest import random_episode
from short_runs import config_of, new_run

import varscale.runs.trainer
from varscale.data import Dataset
from varscale.evaluation import evaluate
from varscale.runs import load
from varscale.runs.checkpoint import newest_checkpoint, weights_hash
from varscale.runs.config import validation
from varscale.runs.launch import launch
from varscale.runs.logbook import read_metrics
from varscale.runs.trainer import Trainer, train


def finish(run):
    for _ in train(run.path, run.config):
        pass
    return run.result


INITS = {"svs": (0.1, 1.0, 10.0, 100.0, 1000.0), "d-svs": (0.1, 1000.0), "d-avs": (0.1, 1000.0)}


@pytest.mark.parametrize("scaler", INITS)
def test_the_initial_value_does_not_matter(tiny_images, tmp_path, scaler):
    ends = []
    for init in INITS[scaler]:
        options = {"init": init, **({"hidden": 5} if scaler == "d-avs" else {})}
        config = config_of(scaler, scaler_options=options, val_every=0, checkpoint_every=0)
        run = new_run(tmp_path / str(init), config)
        finish(run)
        rows = read_metrics(run.path)
        assert rows[0]["scale_init"] == pytest.approx(init, rel=1e-5)
        assert not any("scale_init" in row for row in rows[1:])
        ends.append(rows[-1]["scale_mean"])
    assert ends == pytest.approx([ends[0]] * len(ends), rel=0.01)
    assert ends[0] != pytest.approx(rows[0]["scale_init"], rel=0.5)


def test_a_published_scale_begins_where_it_is_told(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of("d-svs/normal", steps=2, val_every=0))
    finish(run)
    rows = read_metrics(run.path)
    assert "scale_init" not in rows[0]
    assert run.result["scale"]["log"] == 0
    assert run.result["scale"]["begin"] == pytest.approx(rows[0]["scale_mean"])
    trainer = new_trainer(new_run(tmp_path / "other", config_of("d-svs/normal")))
    assert trainer.model.scaler.loc.unique().item() == 10.0


def new_trainer(run):
    data = Dataset.open("tiny-images")
    return Trainer(run, run.config, launch(1, accelerator="cpu"), data)


def test_the_beginning_is_the_same_whatever_came_before(tiny_images, tmp_path):
    """Weights are those of the config, the scale is that of the first tasks, and neither draws."""
    config = config_of("d-svs")
    torch.manual_seed(1)
    first = new_trainer(new_run(tmp_path / "a", config)).model
    torch.manual_seed(2)
    second = new_trainer(new_run(tmp_path / "b", config)).model
    assert weights_hash(first) == weights_hash(second)
    plain = new_run(tmp_path / "c", config).config.model()
    for name, tensor in first.state_dict().items():
        same = torch.equal(tensor, plain.state_dict()[name])
        assert same == (name != "scaler.loc"), name


def val_nll(model, config):
    split, sampler = validation(config, Dataset.open(config.dataset))
    return float(evaluate(model, split, sampler, episodes=config.val_episodes).nll.mean())


SCALERS = ("svs", "d-svs", "d-avs")
TADAM = {
    "host": "tadam",
    "backbone": "resnet12",
    "backbone_options": {"width": 1 / 16},
    "metric": "euclidean",
    "steps": 4,
}


@pytest.mark.parametrize("case", [*SCALERS, "tadam"])
def test_relearning_fits_the_best_models_scale_to_validation(tiny_images, tmp_path, case):
    scaler, options = ("d-svs", TADAM) if case == "tadam" else (case, {})
    runs = [
        new_run(tmp_path / str(relearn), config_of(scaler, relearn=relearn, **options))
        for relearn in (False, True)
    ]
    results = [finish(run) for run in runs]
    assert "relearned" not in results[0]["scale"]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]  # of training
    assert results[0]["best_step"] == results[1]["best_step"]
    scale = results[1]["scale"]
    assert {"begin", "end", "drift", "log", "trained", "relearned"} == set(scale)
    assert scale["log"] == 1

    trained, relearned = (load(run.path) for run in runs)
    place = "scaler.shared.loc" if scaler == "d-avs" else "scaler.loc"
    shift = relearned.state_dict()[place] - trained.state_dict()[place]
    factor = scale["relearned"] / scale["trained"]
    torch.testing.assert_close(shift.exp(), torch.full_like(shift, factor), rtol=1e-4, atol=0)
    for name, tensor in trained.state_dict().items():
        assert name == place or torch.equal(tensor, relearned.state_dict()[name]), name
    if case == "svs":
        items = random_episode(dtype=torch.float32, dim=relearned.host.out_dim)
        for model, name in ((trained, "trained"), (relearned, "relearned")):
            alpha = model.posterior(items.support, items.query).mean.item()
            assert alpha == pytest.approx(scale[name], rel=1e-4)
    best = newest_checkpoint(runs[1].path / "best")
    assert best.step == results[1]["steps"] + 1  # beside the model as trained
    assert torch.equal(best.tensors[f"model/{place}"], relearned.state_dict()[place])

    config = runs[1].config
    assert val_nll(relearned, config) <= val_nll(trained, config) + 1e-6
    if case == "tadam":  # after four steps its answers hardly depend on the scale
        return
    for wrong in (0.9, 1.1):  # but for the prior, which counts as one query
        relearned.scaler.rescale_(wrong)
        assert val_nll(relearned, config) > val_nll(load(runs[1].path), config)
        relearned.scaler.rescale_(1 / wrong)


@pytest.mark.parametrize("scaler", SCALERS)
def test_a_kill_between_relearning_and_the_result_changes_nothing(tiny_images, tmp_path, scaler):
    run = new_run(tmp_path / "run", config_of(scaler))
    before = finish(run)
    best = {p.name: p.read_bytes() for p in (run.path / "best").glob("*.safetensors")}
    (run.path / "result.json").unlink()
    after = finish(run)
    assert after == before
    assert {p.name: p.read_bytes() for p in (run.path / "best").glob("*.safetensors")} == best


def test_without_relearning_the_best_model_is_as_it_was_trained(tiny_images, tmp_path):
    run = new_run(tmp_path / "run", config_of("svs", relearn=False, val_every=1, steps=4))
    finish(run)
    rows = read_metrics(run.path)
    best = rows[run.result["best_step"] - 1]
    assert val_nll(load(run.path), run.config) == pytest.approx(best["val_nll"], rel=1e-6)


class Scores:
    """What validation might have said."""

    def __init__(self, accuracy, nll):
        self.accuracy, self.nll = (torch.full((2,), x).double() for x in (accuracy, nll))


@pytest.mark.parametrize(
    ("select_by", "best"), [("nll", 3), ("validation", 4)], ids=["nll", "accuracy"]
)
def test_the_model_with_the_lowest_nll_is_kept(tiny_images, tmp_path, monkeypatch, select_by, best):
    said = iter([(0.5, 1.1), (0.6, 1.3), (0.55, 0.9), (0.7, 2.0), (0.65, 0.95)])
    monkeypatch.setattr(varscale.runs.trainer, "evaluate", lambda *_, **__: Scores(*next(said)))
    config = config_of("svs", val_every=1, steps=5, select_by=select_by, relearn=False)
    run = new_run(tmp_path / "run", config)
    finish(run)
    assert run.result["best_step"] == best
    assert newest_checkpoint(run.path / "best").step == best
    assert run.result["val_accuracy"] == pytest.approx({3: 0.55, 4: 0.7}[best])
    losses = [row["val_nll"] for row in read_metrics(run.path)]
    assert losses == pytest.approx([1.1, 1.3, 0.9, 2.0, 0.95])


def test_the_lowest_nll_of_a_real_run(tiny_images, tmp_path):
    config = config_of("svs", val_every=1, lr=0.05, select_by="nll", relearn=False)
    run = new_run(tmp_path / "run", config)
    finish(run)
    losses = [row["val_nll"] for row in read_metrics(run.path)]
    assert run.result["best_step"] == losses.index(min(losses)) + 1
    assert val_nll(load(run.path), run.config) == pytest.approx(min(losses), rel=1e-6)


@pytest.mark.parametrize("scaler", ["fixed", None])
def test_what_is_not_learned_has_no_path(tiny_images, tmp_path, scaler):
    config = replace(config_of("fixed", steps=2), scaler=scaler)
    run = new_run(tmp_path / "run", config)
    finish(run)
    assert run.result["scale"] == {}
    assert json.loads((run.path / "result.json").read_text())["scale"] == {}
