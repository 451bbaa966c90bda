"""The extra classification step: when it comes, on what, and what it does to the weights."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import TINY

from varscale.core.processes import Processes
from varscale.data import Dataset
from varscale.learn.cotraining import Cotraining, CotrainingPlan
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve
from varscale.runs.launch import launch
from varscale.runs.trainer import Trainer

OPTIONS = {
    **TINY,
    "steps": 20,
    "val_every": 10,
    "val_episodes": 20,
    "cotraining": True,
}


def cotraining_of(plan=None, *, seed=0, steps=1000, processes=None):
    config = resolve(TrainConfig(**{**OPTIONS, "steps": steps, "seed": seed}), dataset())
    given = {} if processes is None else {"processes": processes}
    plan = CotrainingPlan() if plan is None else plan
    host = config.model().host
    return Cotraining(host, dataset()["train"], plan, steps=steps, seed=seed, **given)


def dataset():
    return Dataset.open("tiny-images")


def trainer_of(path, **options):
    config = resolve(TrainConfig(**{**OPTIONS, **options}), dataset())
    run = Run.create(path, config, dataset())
    fabric = launch(1, accelerator="cpu", precision=config.precision)
    return Trainer(run, config, fabric, dataset())


def test_it_comes_as_often_as_the_plan_says(tiny_images):
    plan = CotrainingPlan()
    cotraining = cotraining_of(plan, steps=4000)
    due = np.array([cotraining.due(step) for step in range(4000)]).reshape(20, 200)
    for stage, share in enumerate(due.mean(1)):
        p = plan.probability(200 * stage, 4000)
        assert p == pytest.approx(0.9 ** (stage + 1))
        assert abs(share - p) < 4 * (p * (1 - p) / 200) ** 0.5
    other = cotraining_of(plan, steps=4000, seed=1)
    assert [other.due(s) for s in range(200)] != due[0].tolist()
    assert all(cotraining_of(replace(plan, offset=0)).due(s) for s in range(50))  # p = 1


def test_it_draws_from_a_fixed_part_of_the_training_images(tiny_images):
    cotraining = cotraining_of()
    split = dataset()["train"]
    assert len(cotraining.held_out) == round(0.1 * len(split)) == 8
    assert sorted([*cotraining.held_out, *cotraining.rows]) == list(range(len(split)))
    pixels = {item.numpy().tobytes(): row for row, item in enumerate(split.items(torch.arange(84)))}
    classes = split.labels - split.labels.min()
    counts = np.zeros(len(split))
    for step in range(100):
        items, labels = cotraining.batch(step)
        assert items.shape == (64, 1, 8, 8)
        rows = [pixels[item.numpy().tobytes()] for item in items]
        assert labels.tolist() == classes[rows].tolist()
        counts += np.bincount(rows, minlength=len(split))
        assert len(set(rows)) < 64  # with replacement
    assert counts[cotraining.held_out].sum() == 0
    expected = 6400 / len(cotraining.rows)
    chi_square = ((counts[cotraining.rows] - expected) ** 2 / expected).sum()
    assert chi_square < 120  # 75 degrees of freedom: p = 0.0007


def test_processes_take_equal_parts_of_a_batch(tiny_images):
    whole = cotraining_of().batch(7)
    parts = [cotraining_of(processes=Processes(rank, 4)).batch(7) for rank in range(4)]
    for all_of_it, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        assert torch.equal(all_of_it, torch.cat(pieces))


def test_head(tiny_images):
    head = cotraining_of().head
    assert head.weight.shape == (7, 16)
    bound = (6 / (7 + 16)) ** 0.5  # Glorot
    assert 0.9 * bound < head.weight.abs().max() <= bound
    assert (head.bias == 0).all()
    assert torch.equal(head.weight, cotraining_of().head.weight)
    assert not torch.equal(head.weight, cotraining_of(seed=1).head.weight)


def test_a_step_by_hand(tiny_images, tmp_path):
    """First SGD with its own momentum on classification, then SGD with the other on tasks."""
    rates = {"algorithm": "sgd", "lr": 0.1, "weight_decay": 0.01, "clip": 0.5}
    rates |= {"lr_milestones": [2], "lr_factor": 0.1}
    rates |= {"precision": "64-true"}
    trainer = trainer_of(tmp_path / "run", **rates, cotraining_options={"decay": 1.0})
    model, head = copy.deepcopy(trainer.model), copy.deepcopy(trainer.cotraining.head)
    backbone = list(model.host.backbone.parameters())
    matrices, momenta = {id(p) for p in backbone if p.ndim > 1}, {}

    def sgd(kind, parameters, gradients, decayed, lr):
        for number, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
            g = g * min(1.0, 0.5 / g.norm().item())
            g = g + 0.01 * p.detach() if decayed(p) else g
            key = (kind, number)
            momenta[key] = g if key not in momenta else 0.9 * momenta[key] + g
            p.data -= lr * momenta[key]

    for step, lr in enumerate((0.1, 0.1, 0.01)):
        items, labels = trainer.cotraining.batch(step)
        loss = F.cross_entropy(head(model.host.backbone(items.double())), labels)
        learned = [*backbone, *head.parameters()]
        sgd("extra", learned, torch.autograd.grad(loss, learned), lambda p: id(p) in matrices, lr)
        index, episode = trainer.feed(step)
        loss = model.loss(episode, index=index).total
        sgd("tasks", backbone, torch.autograd.grad(loss, backbone), lambda p: p.ndim > 1, lr)
        metrics = trainer.step(step)
        assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-6)  # logged in single precision
        assert {"cotraining_loss", "cotraining_accuracy"} <= set(metrics)
    for ours, expected in zip(trainer.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(trainer.cotraining.head.weight, head.weight, rtol=0, atol=1e-10)


def test_it_may_stand_instead_of_the_step_on_tasks(tiny_images, tmp_path):
    options = {"decay": 0.5, "offset": 1, "replace": True}
    trainer = trainer_of(tmp_path / "run", cotraining_options=options)
    for step in range(10):
        metrics = trainer.step(step)
        assert ("cotraining_loss" in metrics) != ("loss" in metrics)
    assert 0 < trainer.state["hits"] < 10


def test_what_is_held_out_is_only_looked_at(tiny_images, tmp_path):
    trainer = trainer_of(tmp_path / "run")
    before = copy.deepcopy(trainer.model.state_dict())
    accuracy = trainer.validate(0)["cotraining_val_accuracy"]
    trainer.model.eval()
    rows = torch.from_numpy(trainer.cotraining.held_out)
    logits = trainer.cotraining.head(trainer.model.host.backbone(dataset()["train"].items(rows)))
    labels = torch.from_numpy(trainer.cotraining.labels[rows])
    assert accuracy == pytest.approx((logits.argmax(-1) == labels).double().mean().item())
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    none = trainer_of(tmp_path / "none", cotraining_options={"held_out": 0.0})
    assert "cotraining_val_accuracy" not in none.validate(0)


def test_its_batch_can_count_in_the_statistics_at_every_step(tiny_images, tmp_path):
    never = {"decay": 0.0}
    due = trainer_of(tmp_path / "due", cotraining_options=never)
    always = trainer_of(tmp_path / "always", cotraining_options={**never, "statistics": "always"})
    for step in range(2):
        assert due.step(step)["loss"] == always.step(step)["loss"]  # no weight hears of it
    ours, theirs = due.model.state_dict(), always.model.state_dict()
    differ = {name for name in ours if not torch.equal(ours[name], theirs[name])}
    assert differ == {name for name in ours if ".running_" in name or "batches_tracked" in name}


def test_others_do_without(tiny_images, tmp_path):
    trainer = trainer_of(tmp_path / "run", cotraining=False)
    assert trainer.cotraining is None
    assert not any(name.startswith("cotraining") for name in trainer.step(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cotraining_options": {"batches": 2}}, "Unknown option of cotraining: 'batches'"),
        ({"cotraining_options": {"batch_size": 0}}, "batch_size, an integer >= 2, got 0"),
        ({"cotraining_options": {"decay": 1.5}}, r"decay, a number in 0\.\.1, got 1\.5"),
        ({"cotraining_options": {"decay": "x"}}, r"decay, a number in 0\.\.1, got 'x'"),
        ({"cotraining_options": {"held_out": -1}}, r"held_out, a number in 0\.\.1, got -1"),
        ({"cotraining_options": {"replace": "maybe"}}, "replace, true or false, got 'maybe'"),
        ({"cotraining_options": {"offset": True}}, "offset, an integer >= 0, got True"),
        ({"cotraining_options": {"stages": 0}}, "stages, an integer >= 1, got 0"),
        ({"cotraining_options": {"statistics": "allways"}}, "Did you mean 'always'"),
        ({"cotraining": False, "cotraining_options": {"offset": 0}}, "need cotraining=true"),
        (
            {"devices": 2, "tasks_per_step": 2, "cotraining_options": {"batch_size": 63}},
            "batch_size to be a multiple of the 2 processes, got 63. .*batch_size=64",
        ),
    ],
)
def test_impossible_settings_are_refused(options, message, as_user):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**{**OPTIONS, **options})


def test_holding_out_everything_is_refused(tiny_images):
    options = {"cotraining_options": {"held_out": 0.999}}
    with pytest.raises(ValueError, match="All 84 training images are held out"):
        resolve(TrainConfig(**{**OPTIONS, **options}), dataset())


def test_a_batch_of_one_image_is_no_divergence(tiny_images, tmp_path):
    options = {"host": "pn", "backbone": "resnet12", "backbone_options": {"width": 1 / 16}}
    trainer = trainer_of(tmp_path / "run", **options, queries="random", n_query=1, cotraining=False)
    with pytest.raises(ValueError, match="A batch of one image has no batch statistics"):
        trainer.step(0)


def test_selection_by_training_counts_steps_on_tasks_alone(tiny_images, tmp_path):
    options = {"select_by": "training", "val_every": 5}
    options["cotraining_options"] = {"decay": 0.7, "replace": True}
    trainer = trainer_of(tmp_path / "run", **options)
    for first in (0, 5, 10, 15):
        steps = [trainer.step(step) for step in range(first, first + 5)]
        best = trainer.state["best"] or 0.0
        accuracies = [row["accuracy"] for row in steps if "accuracy" in row]
        trainer.validate(first + 4)
        mean = sum(accuracies) / max(len(accuracies), 1)
        assert trainer.state["best"] == pytest.approx(max(best, mean))
