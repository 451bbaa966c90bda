"""The correction of class weights: the minimum of what it minimises, however it is found."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from varscale.functional import fit_probe

MANY = 3000
"""Steps until nothing changes."""


def problem(*batch, items, dim=8, way=3, seed=0):
    draw = torch.Generator().manual_seed(seed)
    z = torch.nn.functional.normalize(torch.randn(*batch, items, dim, generator=draw), dim=-1)
    labels = torch.randint(way, (*batch, items), generator=draw)
    return z.double(), labels, torch.randn(*batch, items, way, generator=draw).double()


def number(value):
    return torch.full((1, 1), float(value)).double()


def slope(z, labels, offset, precision, weights):
    """Gradient of the objective, by autograd."""
    v = weights.clone().requires_grad_()
    log_p = (offset + z @ v.T).log_softmax(-1)
    loss = -log_p.gather(-1, labels[:, None]).sum() + precision / 2 * v.square().sum()
    return torch.autograd.grad(loss, v)[0]


@pytest.mark.parametrize("precision", [0.03, 1.0, 20.0])
@pytest.mark.parametrize("items", [6, 30])  # fewer than dimensions, and more
def test_at_the_solution_the_objective_is_flat(items, precision):
    z, labels, offset = problem(items=items)
    found = fit_probe(z, labels, offset, number(precision), steps=MANY)
    assert found.shape == (3, 8)
    assert found.dtype == torch.float64
    start = slope(z, labels, offset, precision, torch.zeros(3, 8).double())
    assert start.abs().max() > 0.1
    assert slope(z, labels, offset, precision, found).abs().max() < 1e-8


@pytest.mark.parametrize("items", [6, 30])
def test_the_usual_steps_change_no_probability_by_a_thousandth(items):
    """At the least precision in use: a scale of 20, so that corrections reach 6."""
    z, labels, offset = problem(items=items)
    offset = 3 * offset
    few, many = (
        (offset + z @ fit_probe(z, labels, offset, number(6.0**-2), **how).T).softmax(-1)
        for how in ({}, {"steps": MANY})
    )
    torch.testing.assert_close(few, many, rtol=0, atol=1e-3)


def test_coefficients_of_examples_and_weights_are_one_solution():
    """Every example twice at twice the precision is the same problem, over more examples."""
    z, labels, offset = problem(items=6)
    twice = (torch.cat([t, t]) for t in (z, labels, offset))
    dual = fit_probe(z, labels, offset, number(0.5), steps=MANY)
    primal = fit_probe(*twice, number(1.0), steps=MANY)
    torch.testing.assert_close(dual, primal, rtol=0, atol=1e-8)
    assert dual.abs().max() > 0.1


@pytest.mark.parametrize("items", [6, 30])
def test_a_great_precision_leaves_the_weights_alone(items):
    z, labels, offset = problem(items=items)
    sizes = [
        fit_probe(z, labels, offset, number(precision)).abs().max().item()
        for precision in (1.0, 100.0, 1e9)
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[2] < 1e-8


def test_where_nothing_is_left_nothing_is_corrected():
    z, labels, _ = problem(items=6)
    sure = 60 * torch.nn.functional.one_hot(labels, 3).double()
    assert fit_probe(z, labels, sure, number(0.5)).abs().max() < 1e-9


@pytest.mark.parametrize("items", [6, 30])
def test_many_tasks_at_once(items):
    z, labels, offset = problem(2, 3, items=items)
    precision = torch.linspace(0.1, 5, 6).double().view(2, 3, 1, 1)
    found = fit_probe(z, labels, offset, precision)
    shared = fit_probe(z, labels, offset, number(0.7))
    assert found.shape == (2, 3, 3, 8)
    for i in range(2):
        for j in range(3):
            task = z[i, j], labels[i, j], offset[i, j]
            one, other = fit_probe(*task, precision[i, j]), fit_probe(*task, number(0.7))
            torch.testing.assert_close(found[i, j], one, rtol=0, atol=1e-10)
            torch.testing.assert_close(shared[i, j], other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("items", [7, 40])
@pytest.mark.parametrize("precision", [0.1, 2.0])
def test_without_scores_it_is_a_logistic_regression(items, precision):
    z, _, offset = problem(items=items)
    labels = torch.arange(items) % 3
    theirs = LogisticRegression(C=1 / precision, fit_intercept=False, tol=1e-10, max_iter=10_000)
    theirs.fit(z.numpy(), labels.numpy())
    found = fit_probe(z, labels, 0 * offset, number(precision), steps=MANY)
    torch.testing.assert_close(found, torch.from_numpy(theirs.coef_), rtol=0, atol=1e-5)


@pytest.mark.parametrize("items", [6, 30])
def test_identical_examples_and_zeros_give_finite_weights(items):
    z, labels, offset = problem(items=items)
    assert fit_probe(0 * z, labels, offset, number(0.1)).tolist() == [[0.0] * 8] * 3
    assert fit_probe(z[:1].expand_as(z), labels, offset, number(0.1)).isfinite().all()


@pytest.mark.parametrize("items", [6, 30])
def test_examples_of_no_weight_do_not_count(items):
    z, labels, offset = problem(items=items)
    weight = (torch.arange(items) % 3 > 0).double()
    kept = weight > 0
    found = fit_probe(z, labels, offset, number(0.5), weight, steps=MANY)
    expected = fit_probe(z[kept], labels[kept], offset[kept], number(0.5), steps=MANY)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
    whole = fit_probe(z, labels, offset, number(0.5), torch.ones(items).double(), steps=MANY)
    torch.testing.assert_close(whole, fit_probe(z, labels, offset, number(0.5), steps=MANY))
    assert not torch.allclose(whole, found, atol=1e-2)


@pytest.mark.parametrize("items", [6, 30])
def test_several_corrections_of_the_same_examples(items):
    z, labels, offset = problem(items=items)
    precision = torch.tensor([0.1, 2.0]).double().view(2, 1, 1, 1)
    weight = torch.stack([torch.ones(items), torch.arange(items) % 2, torch.zeros(items)]).double()
    given = (t[None, None] for t in (z, labels, offset))
    found = fit_probe(*given, precision, weight)
    assert found.shape == (2, 3, 3, 8)
    for i in range(2):
        for j in range(3):
            one = fit_probe(z, labels, offset, precision[i, 0], weight[j])
            torch.testing.assert_close(found[i, j], one, rtol=0, atol=1e-10)
    assert not found[:, 2].any()
    own = torch.stack([z, 0.5 * z])[:, None]  # items of the first axis, fits of the second
    found = fit_probe(own, labels[None, None], offset[None, None], precision, weight)
    for i in range(2):
        for j in range(3):
            one = fit_probe(own[i, 0], labels, offset, precision[i, 0], weight[j])
            torch.testing.assert_close(found[i, j], one, rtol=0, atol=1e-10)
