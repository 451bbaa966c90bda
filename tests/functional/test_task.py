"""What the examples of a task tell about it, against plain loops and searches over a grid."""

import math

import numpy as np
import pytest
import torch

from varscale.functional import (
    average_softmax,
    class_spread,
    class_variances,
    leave_one_out,
    likeliest_factor,
    prototypes,
    query_factor,
    query_logits,
    scale_factor,
    task_origin,
)

SIZES = {
    "equal": [3, 3, 3, 3],
    "unequal": [2, 5, 3],
    "one alone": [1, 4, 2],
    "all alone": [1, 1, 1],
}


def examples(sizes, *, dim=5, away=1.0, seed=0):
    """Examples of classes that lie `away` from zero, in a random order."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=draw)]
    means = torch.randn(len(sizes), dim, generator=draw, dtype=torch.float64) + away
    return means[labels] + torch.randn(len(labels), dim, generator=draw).double(), labels


def counts_of(labels, n_way):
    return torch.bincount(labels, minlength=n_way).double()


def left_out(x, labels, n_way):
    """Cosines of each example and the class means about an origin, all made without it."""
    given = torch.zeros(x.shape[-1]).double()
    _, weight = task_origin(prototypes(x, labels, n_way), given)
    out = torch.empty(len(x), n_way).double()
    for i in range(len(x)):
        kept = torch.arange(len(x)) != i
        if not (labels[kept] == labels[i]).any():
            kept[i] = True  # an only example stays
        means = torch.stack([x[kept & (labels == k)].mean(0) for k in range(n_way)])
        origin = given + weight[0, 0] * (means.mean(0) - given)
        for k in range(n_way):
            query, mean = x[i] - origin, means[k] - origin
            out[i, k] = (query @ mean) / (query.norm() * mean.norm())
    return out, weight


def in_closed_form(x, labels, n_way):
    means = prototypes(x, labels, n_way)
    origin, weight = task_origin(means, x.new_zeros(x.shape[-1]))
    count = torch.nn.functional.one_hot(labels, n_way).sum(-2).to(x)
    return leave_one_out(x - origin, labels, means - origin, count, weight)


@pytest.mark.parametrize("away", [0.0, 0.6, 3.0])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_each_example_is_really_left_out(sizes, away):
    x, labels = examples(sizes, away=away)
    expected, _ = left_out(x, labels, len(sizes))
    found = in_closed_form(x, labels, len(sizes))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_an_example_lends_its_own_class_nothing():
    x, labels = examples([3, 3, 3], away=3.0)
    _, weight = left_out(x, labels, 3)
    assert 0.1 < weight.item() < 1  # else the origin that moves is not tested above
    means = prototypes(x, labels, 3)
    origin, _ = task_origin(means, torch.zeros(5).double())
    kept_in = torch.cosine_similarity((x - origin)[:, None], means - origin, dim=-1)
    gain = (kept_in - in_closed_form(x, labels, 3)).gather(1, labels[:, None])
    assert (gain > 0.01).all()


def test_examples_of_many_tasks_at_once():
    tasks = [examples([1, 4, 2], away=3.0, seed=seed) for seed in range(6)]
    x = torch.stack([x for x, _ in tasks]).view(2, 3, 7, 5)
    labels = torch.stack([labels for _, labels in tasks]).view(2, 3, 7)
    found = in_closed_form(x, labels, 3)
    for i, (one, own) in enumerate(tasks):
        expected = left_out(one, own, 3)[0]
        torch.testing.assert_close(found[i // 3, i % 3], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_identical_examples_and_zeros_give_finite_cosines(value):
    x = torch.full((6, 4), value).double()
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    found = in_closed_form(x, labels, 3)
    assert found.isfinite().all()
    assert (found.abs() <= 1).all()
    x[0] = 1.0  # among zeros, or among its like
    assert in_closed_form(x, labels, 3).isfinite().all()


def test_the_origin_in_a_plain_loop(generator):
    means = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64) + 0.5
    given = torch.randn(5, generator=generator, dtype=torch.float64)
    origin, weight = task_origin(means, given)
    assert origin.shape == (2, 3, 1, 5)
    assert weight.shape == (2, 3, 1, 1)
    kept = []
    for task in means.view(6, 4, 5).tolist():
        centre = [sum(column) / 4 for column in zip(*task, strict=True)]
        terms = [(v - c) ** 2 for row in task for v, c in zip(row, centre, strict=True)]
        square = sum((c - m) ** 2 for c, m in zip(centre, given.tolist(), strict=True))
        w = max(0.0, 1 - sum(terms) / 3 / (4 * square))
        kept.append((w, [m + w * (c - m) for c, m in zip(centre, given.tolist(), strict=True)]))
    assert weight.flatten().tolist() == pytest.approx([w for w, _ in kept])
    torch.testing.assert_close(origin.view(6, 5), torch.tensor([o for _, o in kept]).double())
    assert min(w for w, _ in kept) < 0.9


def test_the_origin_near_and_far(generator):
    means = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    given = torch.randn(8, generator=generator, dtype=torch.float64)
    centred = means - means.mean(0)
    origin, weight = task_origin(centred + given, given)  # the classes lie about it
    assert weight.item() == 0
    torch.testing.assert_close(origin[0], given)
    origin, weight = task_origin(centred + given + 1e4, given)
    assert weight.item() == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(origin[0], given + 1e4)
    origin, weight = task_origin(means[:1], given)  # one class says nothing of others
    torch.testing.assert_close(origin[0], given)
    assert weight.item() == 0
    same, weight = task_origin(given.expand(3, 8), given)
    assert same.isfinite().all()
    assert weight.item() <= 1


def test_classes_about_the_given_origin_move_it_little(generator):
    """What James and Stein promise: the estimate is nearer to the truth than the plain mean."""
    means = 0.2 + torch.randn(500, 5, 20, generator=generator, dtype=torch.float64)
    origin, _ = task_origin(means, torch.zeros(20).double())
    error = [(o - 0.2).square().sum(-1).mean() for o in (origin, means.mean(1, keepdim=True))]
    assert error[0] < 0.8 * error[1]


def test_the_spread_of_classes_in_a_plain_loop(generator):
    means = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    found = class_spread(means)
    for t in range(2):
        centre = [sum(column) / 4 for column in zip(*means[t].tolist(), strict=True)]
        terms = [
            (v - c) ** 2 for row in means[t].tolist() for v, c in zip(row, centre, strict=True)
        ]
        assert found[t].item() == pytest.approx(sum(terms) / 3)
    assert class_spread(means[:, :1]).tolist() == [0.0, 0.0]


def variances(spread, square, count, **changed):
    """Factors of the variances of tasks, of one number of examples a class."""
    base = {"between": 2.0, "within": 3.0, "dimensions": 20.0, "reach": 0.5} | changed
    given = (torch.as_tensor(v).double() for v in (spread, square, count))
    return class_variances(*given, **base)


def minus_log_posterior(log_b, log_s, spread, square, count):
    """What the two variances minimise, written as the densities that M39 names."""
    noise, degrees = np.mean(1 / count), (count - 1).sum()
    mean, s = 2.0 * np.exp(log_b) + 3.0 * noise * np.exp(log_s), 3.0 * np.exp(log_s)
    about_means, about_items = 20 * (len(count) - 1), 20 * degrees
    return (
        about_means / 2 * (spread / mean + np.log(mean))
        + about_items / 2 * (square / max(degrees, 1) / s + np.log(s))
        + (log_b**2 + log_s**2) / (2 * 0.5**2)
    )


@pytest.mark.parametrize("count", [[1, 1, 1, 1], [2, 2, 2, 2, 2], [1, 5, 9]])
@pytest.mark.parametrize(("more", "inner"), [(1.0, 1.0), (2.0, 0.7), (0.3, 1.5), (0.1, 2.0)])
def test_variances_of_a_task_are_the_mode(count, more, inner):
    from scipy.optimize import minimize

    n = np.array(count, dtype=float)
    spread, square = more * (2 + 3 * np.mean(1 / n)), inner * 3.0 * (n - 1).sum()
    b, s = variances([spread], [square], [count])
    best = minimize(
        lambda x: minus_log_posterior(*x, spread, square, n),
        [0.0, 0.0],
        bounds=2 * [(-np.log(10), np.log(10))],
        tol=1e-14,
    )
    np.testing.assert_allclose([b.log().item(), s.log().item()], best.x, atol=1e-3)


def test_what_base_classes_show_changes_nothing():
    for count in ([1.0] * 5, [2.0, 3.0, 4.0]):
        n = torch.tensor(count).double()
        spread, square = 2 + 3 * n.reciprocal().mean(), 3 * (n - 1).sum()
        b, s = variances(spread, square, n)
        assert (b.item(), s.item()) == pytest.approx((1, 1), abs=1e-12)


def test_many_dimensions_tell_both_variances(generator):
    """The limit without priors: V less the noise of the means, and the variance within."""
    b, s = variances([5.0], [20.0], [[2.0] * 5], dimensions=1e9)
    assert s.item() == pytest.approx(20 / 5 / 3, rel=1e-6)
    assert b.item() == pytest.approx((5 - 20 / 5 / 2) / 2, rel=1e-6)


def test_one_example_a_class_divides_what_it_cannot_tell_apart():
    """A larger spread may be either; the one that makes up more of it takes more."""
    b, s = variances([2 * 5.0], [0.0], [[1.0] * 5], dimensions=1e9)
    assert 1 < b.item() < s.item()
    assert 2 * b.item() + 3 * s.item() == pytest.approx(10, rel=1e-6)
    none = variances([10.0], [0.0], [[1.0] * 5], reach=1e-6)
    assert [v.item() for v in none] == pytest.approx([1, 1], abs=1e-6)


def test_variances_of_odd_tasks_are_finite():
    spread = torch.tensor([0.0, 1e300, 1e-300, 5.0])
    square = torch.tensor([0.0, 1e300, 0.0, 1e-300])
    for count in ([[1.0]] * 4, [[2.0] * 5] * 4, [[1.0] * 5] * 4):
        for found in variances(spread, square, count):
            assert ((found >= 0.1 - 1e-9) & (found <= 10 + 1e-9)).all()


def posterior(logits, labels, weight, spread, log_f):
    """What the factor maximises, at many values of its logarithm."""
    scores = log_f.exp().view(-1, 1, 1) * logits
    own = scores.log_softmax(-1)[:, torch.arange(len(labels)), labels]
    return (weight * own).sum(-1) - log_f.square() / (2 * spread**2)


def factor(logits, labels, weight, spread):
    """The factor alone, for a spread that all tasks share."""
    return scale_factor(logits, labels, weight, torch.full(labels.shape[:-1], spread).double())[0]


@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("size", [0.3, 3.0, 30.0])
def test_the_factor_is_the_best_on_a_fine_grid(generator, size, spread):
    logits = size * torch.rand(3, 12, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (3, 12), generator=generator)
    logits.scatter_add_(-1, labels[..., None], torch.full((3, 12, 1), size / 2).double())
    weight = (torch.arange(12) % 4 != 0).double().expand(3, 12)
    found, std = scale_factor(logits, labels, weight, torch.full((3,), spread).double())
    log_f = torch.linspace(-4 * spread, 4 * spread, 20001).double()
    for t in range(3):
        values = posterior(logits[t], labels[t], weight[t], spread, log_f)
        best = log_f[values.argmax()].item()
        assert math.log(found[t].item()) == pytest.approx(best, abs=1e-3 * spread)
        assert 0 < std[t] < spread


@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_what_examples_leave_uncertain(generator, spread):
    """The information is what is expected of labels that the scores themselves give."""
    logits = torch.randn(1, 8, 3, generator=generator, dtype=torch.float64)
    labels, weight = torch.randint(3, (1, 8), generator=generator), torch.ones(1, 8).double()
    found, std = scale_factor(logits, labels, weight, torch.tensor([spread]).double())
    expected = torch.zeros(1).double()
    for i, scores in enumerate(found * logits[0]):
        for k, p in enumerate(scores.softmax(-1)):

            def log_p(u, i=i, k=k):
                return (found * u.exp() * logits[0, i]).log_softmax(-1)[k]

            expected += p * torch.func.grad(log_p)(torch.zeros(()).double()).square()
    torch.testing.assert_close(std, (expected + spread**-2).rsqrt())
    nothing = scale_factor(logits, labels, 0 * weight, torch.tensor([spread]).double())[1]
    torch.testing.assert_close(nothing, torch.tensor([spread]).double())


@pytest.mark.parametrize("std", [0.0, 0.1, 0.5])
def test_probabilities_are_averaged_over_scales(generator, std):
    logits = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    found = average_softmax(logits, torch.tensor([std, 0.0]).double())
    noise = torch.linspace(-8, 8, 4001).double()
    density = (-noise.square() / 2).softmax(0)
    p = ((std * noise).exp().view(-1, 1, 1) * logits[0]).softmax(-1)
    expected = (density.view(-1, 1, 1) * p).sum(0)
    torch.testing.assert_close(found[0], expected, rtol=0, atol=0.02 * std**4 + 1e-9)
    torch.testing.assert_close(found[1], logits[1].softmax(-1))
    assert torch.equal(found.argsort(-1), logits.argsort(-1))


def test_what_the_factor_does_not_follow(generator):
    logits = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (2, 6), generator=generator)
    ones = torch.ones(2, 6).double()
    assert factor(logits, labels, ones, 0.0).tolist() == [1.0, 1.0]
    nothing = factor(logits, labels, 0 * ones, 0.3)
    torch.testing.assert_close(nothing, torch.ones(2).double(), rtol=0, atol=1e-5)
    assert not torch.allclose(factor(logits, labels, ones, 0.3), nothing, atol=1e-3)
    half = ones.clone()
    half[:, 3:] = 0
    some = factor(logits[:, :3], labels[:, :3], ones[:, :3], 0.3)
    torch.testing.assert_close(factor(logits, labels, half, 0.3), some)


def test_the_factor_grows_where_examples_are_told_apart_and_falls_where_not():
    right = torch.tensor([[4.0, 0.0], [0.0, 4.0]]).double()
    labels, ones = torch.tensor([0, 1]), torch.ones(2).double()
    assert factor(right, labels, ones, 0.3) > 1
    assert factor(right, labels.flip(0), ones, 0.3) < 0.8


def test_the_factor_of_a_query():
    top = torch.tensor([0.1, 0.2, 0.4, 0.8]).double()
    found = query_factor(top, 0.5, typical=0.2)
    assert found.tolist() == pytest.approx([2**0.5, 1.0, 2**-0.5, 0.5])
    assert query_factor(top, 0.0, typical=0.2).tolist() == [1.0] * 4
    assert (query_factor(top, -0.5, typical=0.2).diff() > 0).all()
    low = query_factor(torch.tensor([-1.0, 0.0, 0.05, 0.1]).double(), 0.5, typical=0.2)
    assert low.tolist() == pytest.approx([2**0.5] * 4)  # base tasks have few such similarities


def test_the_likeliest_class_need_not_be_the_most_similar():
    """Unequal shots and corrections tell them apart."""
    cosine = torch.tensor([[0.8, 0.4], [0.8, 0.4]]).double()
    scores = torch.tensor([[1.0, 2.0], [2.0, 1.0]]).double()
    found = likeliest_factor(cosine, scores, 0.5, typical=0.2)
    assert found.flatten().tolist() == pytest.approx([2**-0.5, 0.5])


@pytest.mark.parametrize("power", [-0.7, 0.0, 0.4])
def test_scores_of_queries_in_a_plain_loop(generator, power):
    z, references, weights = (
        torch.nn.functional.normalize(torch.randn(2, n, 5, generator=generator).double(), dim=-1)
        for n in (7, 4, 4)
    )
    bias = torch.randn(2, 4, generator=generator).double()
    found = query_logits(z, references, 9 * weights, bias, power=power, typical=0.3)
    plain = z @ (9 * weights).mT + bias.unsqueeze(-2)
    if not power:
        assert torch.equal(found, plain)
    assert torch.equal(found.argmax(-1), plain.argmax(-1))
    for t in range(2):
        for j in range(7):
            likeliest = max(range(4), key=lambda k: plain[t, j, k].item())
            top = max(float(z[t, j] @ references[t, likeliest]), 0.15)
            expected = [(top / 0.3) ** -power * score for score in plain[t, j].tolist()]
            assert found[t, j].tolist() == pytest.approx(expected)


def test_scores_of_zeros_are_zeros():
    zeros = torch.zeros(3, 5).double()
    weights, bias = torch.ones(3, 5).double(), torch.zeros(3).double()
    found = query_logits(zeros, zeros, weights, bias, power=0.5, typical=0.3)
    assert found.tolist() == [[0.0] * 3] * 3
