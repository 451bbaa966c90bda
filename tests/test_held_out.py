"""Choosing among models by classes that none of them was trained on."""

import numpy as np
import pytest
import torch

import varscale
from varscale.frozen import MixedTasks, choose, class_nll, learn
from varscale.held_out import class_means, simplest_good


def test_class_means_in_a_plain_loop():
    values, classes = np.array([1.0, 2.0, 4.0, 8.0]), np.array([7, 3, 7, 3])
    assert class_means(values, classes).tolist() == [5.0, 2.5]


def test_the_simplest_within_one_standard_error_of_the_best():
    best = np.array([1.0, 2.0, 3.0, 4.0])
    near = best + np.array([0.3, -0.1, 0.1, -0.1])  # 0.05 worse, error 0.096
    far = best + np.array([0.11, 0.09, 0.12, 0.08])  # 0.10 worse, error 0.009
    assert simplest_good(np.stack([far, near, best])) == 1
    assert simplest_good(np.stack([far, best, near])) == 1
    assert simplest_good(np.stack([best, near, far])) == 0
    assert simplest_good(best[None]) == 0


def test_more_items_of_the_same_classes_do_not_narrow_the_error(generator):
    """It is over classes: what a plain loop over them says, however many items each had."""
    losses = torch.rand(3, 6, generator=generator).double().numpy()
    best = min(range(3), key=lambda i: sum(losses[i]))
    expected = None
    for i in reversed(range(3)):
        d = [a - b for a, b in zip(losses[i], losses[best], strict=True)]
        mean = sum(d) / 6
        error = (sum((v - mean) ** 2 for v in d) / 5 / 6) ** 0.5
        expected = i if mean <= error else expected
    assert simplest_good(losses) == expected


def embedded(seed: int, n_classes: int, useful: int):
    """Classes that differ in some of 16 dimensions; the others are noise of the same size."""
    g = torch.Generator().manual_seed(seed)
    labels = np.repeat(np.arange(n_classes) * 3 - 5, 12)  # any integers
    centres = torch.randn(n_classes, 16, generator=g)
    centres[:, useful:] = 0
    return centres.repeat_interleave(12, 0) + 0.5 * torch.randn(
        n_classes * 12, 16, generator=g
    ), labels


def model(n_tasks: float) -> varscale.ScaledModel:
    return varscale.create(
        backbone="identity",
        backbone_options={"dim": 16},
        metric="cosine",
        scaler="d-svs",
        scaler_options={
            "prior": "hierarchical",
            "kl_weight": "elbo",
            "n_tasks": n_tasks,
            "init_loc": 10.0,
            "shot_offset": 0.5,
        },
    )


@pytest.mark.usefixtures("as_user")
def test_classes_are_believed_as_far_as_other_classes_agree():
    x, y = embedded(0, 24, useful=4)
    agree, _ = choose(model, [200.0, 0.01], x, y, *embedded(1, 24, useful=4), steps=60)
    # other classes differ in the very dimensions that these have not
    z, w = embedded(2, 24, useful=4)
    disagree, kept = choose(model, [200.0, 0.01], x, y, z.flip(1), w, steps=60)
    assert (agree, disagree) == (200.0, 0.01)
    again = model(0.01)
    learn(again, x, MixedTasks(y), steps=60)
    assert torch.equal(kept.scaler.loc, again.scaler.loc)


def test_loss_of_classes_in_a_plain_loop():
    x, y = embedded(0, 6, useful=16)
    scaled = model(3.0)
    tasks = MixedTasks(y, ways=(3,), shots=(1, 2), n_query=2)
    found: dict[int, list[float]] = {}
    for step in range(2):
        rows = tasks.batch(step, 20)
        for t in range(20):
            one = slice(t, t + 1)
            log_p = scaled.predict(
                x[rows.support[one]], rows.support_labels[one], x[rows.query[one]], n_way=3
            )[0]
            for q, row in enumerate(rows.query[t]):
                loss = -log_p[q, rows.query_labels[t, q]].item()
                found.setdefault(int(y[row]), []).append(loss)
    expected = [np.mean(found[c]) for c in sorted(found)]
    ours = class_nll(scaled, x, y, tasks, tasks_per_shape=20)
    assert ours == pytest.approx(expected, rel=1e-5)


def test_classes_of_one_item_cannot_be_held_out():
    x, y = embedded(0, 6, useful=16)
    with pytest.raises(ValueError, match="two held-out classes with two items"):
        choose(model, [1.0], x, y, x[:3], np.arange(3))
