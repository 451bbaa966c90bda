"""Choosing among models by classes that none of them was trained on."""

import numpy as np
import pytest
import torch

import varscale
from varscale.data.mixed import MixedTasks
from varscale.learn import choose_effective_tasks, learn_scaler
from varscale.learn import embeddings as frozen
from varscale.learn.embeddings import held_out_nll
from varscale.learn.selection import class_nll, simplest_good


def test_the_simplest_within_one_standard_error_of_the_best():
    best = np.array([1.0, 2.0, 3.0, 4.0])
    near = best + np.array([0.3, -0.1, 0.1, -0.1])  # 0.05 worse, error 0.096
    far = best + np.array([0.11, 0.09, 0.12, 0.08])  # 0.10 worse, error 0.009
    assert simplest_good(np.stack([far, near, best])) == 1
    assert simplest_good(np.stack([far, best, near])) == 1
    assert simplest_good(np.stack([best, near, far])) == 0
    assert simplest_good(best[None]) == 0


@pytest.mark.parametrize(
    ("worse", "chosen"),
    [
        ([0.0, 1.0], 0),  # 0.5 worse, error 0.5; sd / n would be 0.35, with ddof 0 also
        ([0.0, 0.0, 0.9, 0.9], 1),  # 0.45 worse: error 0.26, standard deviation 0.52
    ],
)
def test_the_error_is_that_of_a_mean(worse, chosen):
    assert simplest_good(np.array([worse, np.zeros(len(worse))])) == chosen


def test_the_rule_in_a_plain_loop(generator):
    for losses in torch.rand(200, 3, 4, generator=generator).double().numpy():
        best = min(range(3), key=lambda i: sum(losses[i]))
        expected = None
        for i in reversed(range(3)):
            d = [a - b for a, b in zip(losses[i], losses[best], strict=True)]
            mean = sum(d) / 4
            error = (sum((v - mean) ** 2 for v in d) / 3 / 4) ** 0.5
            expected = i if mean <= error else expected
        assert simplest_good(losses) == expected


def test_what_diverged_is_out():
    nan, good = [np.nan, 1.0], [1.0, 1.0]
    assert simplest_good(np.array([nan, [9.0, 9.1], good, [np.inf, 0.0]])) == 2
    with pytest.raises(ValueError, match="got 0 candidates with finite losses"):
        simplest_good(np.array([nan, nan]))
    with pytest.raises(ValueError, match="of 1 classes"):
        simplest_good(np.array([[1.0], [0.0]]))


def embedded(seed: int, n_classes: int, useful: int):
    """Classes that differ in some of 16 dimensions; the others are noise of the same size."""
    g = torch.Generator().manual_seed(seed)
    labels = np.repeat(np.arange(n_classes) * 3 - 5, 12)  # any integers
    centres = torch.randn(n_classes, 16, generator=g)
    centres[:, useful:] = 0
    noise = torch.randn(n_classes * 12, 16, generator=g)
    return centres.repeat_interleave(12, 0) + 0.5 * noise, labels


def model(effective_tasks: float) -> varscale.ScaledModel:
    return varscale.create(
        backbone="identity",
        backbone_options={"dim": 16},
        metric="cosine",
        scaler="d-svs",
        scaler_options={
            "family": "hierarchical",
            "kl_weight": "elbo",
            "effective_tasks": effective_tasks,
            "init": 10.0,
        },
        shot_offset=0.5,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("as_user")
def test_classes_are_believed_as_far_as_other_classes_agree():
    x, y = embedded(0, 24, useful=4)
    how = {"steps": 60, "seed": 3}
    agree, kept = choose_effective_tasks(
        model, [200.0, 0.01], x, y, *embedded(1, 24, useful=4), **how
    )
    assert agree == 200.0
    again = model(200.0)
    learn_scaler(again, x, MixedTasks(y, seed=3), steps=60, seed=3)
    assert torch.equal(kept.scaler.loc, again.scaler.loc)
    # other classes differ in the very dimensions that these have not
    z, w = embedded(2, 24, useful=4)
    assert choose_effective_tasks(model, [200.0, 0.01], x, y, z.flip(1), w, **how)[0] == 0.01


def test_every_number_is_judged_by_the_same_tasks_the_least_first(monkeypatch):
    x, y = embedded(0, 6, useful=16)
    asked = []

    def nll(model, table, tasks):
        asked.append((round(1 / model.scaler.kl_weight), id(tasks)))
        return np.zeros(6)

    monkeypatch.setattr(frozen, "held_out_nll", nll)
    assert (
        choose_effective_tasks(model, [4.0, 1.0, 2.0], x, y, x, y, steps=1)[0] == 1.0
    )  # as good as the others
    assert [n for n, _ in asked] == [1, 2, 4]
    assert len({tasks for _, tasks in asked}) == 1


def test_losses_of_classes_in_a_plain_loop():
    x, y = embedded(0, 6, useful=16)
    x, scaled = x.double(), model(3.0).double()
    tasks = MixedTasks(y, ways=(3,), shots=(1, 2), n_query=2)
    found: dict[int, list[float]] = {}
    for step in range(4):  # two shapes, twice
        rows = tasks.batch(step, 10)
        for t in range(10):
            one = slice(t, t + 1)
            log_p = scaled.predict(
                x[rows.support[one]], rows.support_labels[one], x[rows.query[one]], n_way=3
            )[0]
            for q, row in enumerate(rows.query[t]):
                loss = -log_p[q, rows.query_labels[t, q]].item()
                found.setdefault(int(y[row]), []).append(loss)
    expected = [np.mean(found[c]) for c in sorted(found)]
    ours = held_out_nll(scaled, x, tasks, rounds=2, tasks_per_round=10)
    assert ours == pytest.approx(expected, rel=1e-10)


def test_losses_of_several_shapes_weigh_by_their_queries():
    two, three = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.2, 0.3, 0.5]]).log()
    parts = [
        (two, torch.tensor([1]), torch.tensor([7])),
        (three.expand(2, 3), torch.tensor([0, 2]), torch.tensor([7, -1])),
    ]
    assert class_nll(parts) == pytest.approx([np.log(2), (np.log(2) + np.log(5)) / 2])


@pytest.mark.usefixtures("as_user")
def test_what_cannot_choose_is_refused_before_anything_is_learned():
    x, y = embedded(0, 6, useful=16)

    def never(n_tasks):
        raise AssertionError

    for wrong, said in [
        (([], x, y, x, y), "at least one number"),
        (([1.0], x, y[:9], x, y), "a label for each of 72 items, got 9"),
        (([1.0], x, y, x, y[:9]), "a label for each of 72 items, got 9"),
        (([1.0], x, y, x[:3], np.arange(3)), "two held-out classes with two items"),
        (([1.0], x[:3], np.arange(3), x, y), "two training classes with two items"),
    ]:
        with pytest.raises(ValueError, match=said):
            choose_effective_tasks(never, *wrong)
