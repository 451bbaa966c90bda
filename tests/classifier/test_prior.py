"""The prior of a classifier: what it says, and what a task may change of it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import classes
from sklearn.base import clone

from varscale import FewShotClassifier
from varscale.classifier.prior import broad_prior, fixed_prior
from varscale.functional import Whitening

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested


def test_the_prior_says_what_it_is(base):
    prior = base.prior_
    assert prior.n_classes == 24
    assert prior.mean > 0
    assert 0 < prior.std < prior.mean
    assert prior.shot_offset > 0
    assert prior.within > 0
    assert prior.between > 0
    assert prior.spread > 0
    assert prior.adapts
    assert "learned on 24 classes" in repr(prior)
    assert clone(FewShotClassifier(prior=prior)).prior.mean == prior.mean  # sklearn's clone


@pytest.mark.parametrize(("n_classes", "learned"), [(9, 0), (10, 10)])
def test_too_few_classes_leave_the_broad_prior(n_classes, learned):
    x, y = classes(n_classes=n_classes + 3, per_class=4)
    kept = (y < n_classes) | (np.arange(len(y)) % 4 == 0)  # three classes keep one example
    prior = FewShotClassifier().fit(x[kept], y[kept]).prior_
    assert prior.n_classes == learned
    assert prior.adapts
    assert (prior.conformity is None) == (not learned)
    assert (prior.facts() == broad_prior(16).facts()) == (not learned)


@pytest.mark.parametrize("value", [0.5, 30])
def test_a_number_is_the_plain_cosine(value):
    x, y = classes(n_classes=5, per_class=6, seed=4)
    few = np.arange(len(y)) % 6 < 3
    clf = FewShotClassifier(prior=value).fit(x[few], y[few])
    means = np.stack([x[few & (y == k)].mean(0) for k in range(5)])
    query = x[~few] / np.linalg.norm(x[~few], axis=1, keepdims=True)
    scores = value * query @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(x[~few]), expected, rtol=1e-9)
    assert not fixed_prior(value, 3).adapts


def test_the_scale_follows_the_lengths_of_class_means_and_queries():
    """It is their product (M39): many dimensions tell both, whatever the prior."""
    prior = replace(broad_prior(4), between=2.0, within=3.0, dimensions=1e12)
    between, within = torch.tensor([2.0, 4.0, 1.0]).double(), torch.tensor([3.0, 3.0, 6.0]).double()
    spread, square, count = between + within / 2, 5 * within, torch.full((3, 5), 2.0).double()
    expected = (between * (between + within) / (2.0 * 5.0)).sqrt()
    found = prior.variances(spread, square, count)
    torch.testing.assert_close(found, (between, within))
    torch.testing.assert_close(prior.spread_factor(*found), expected)
    for other in (replace(prior, adapts=False), replace(prior, between=0.0)):
        assert other.spread_factor(between, within).tolist() == [1.0] * 3


def test_variances_without_base_classes_are_those_of_the_examples():
    """Their means are exact: V = b + s / K sum(1 / n), and s has sum(n - 1) degrees of freedom."""
    prior, count = broad_prior(4), torch.tensor([[1.0, 2.0, 5.0]]).double()
    between, within = torch.tensor([2.0]).double(), torch.tensor([3.0]).double()
    spread, square = between + within * (1 + 1 / 2 + 1 / 5) / 3, 5 * within
    torch.testing.assert_close(prior.variances(spread, square, count), (between, within))
    close = prior.variances(0.1 * spread, square, count)[0]  # classes closer than their noise
    assert close.item() == pytest.approx(0.3)  # a tenth of that within
    single = prior.variances(spread, torch.zeros(1).double(), torch.ones(1, 3).double())
    assert [v.item() for v in single] == [torch.inf] * 2  # one example of each does not tell


def test_variances_of_a_prior_that_does_not_adapt_are_the_base_classes():
    prior = replace(broad_prior(4), between=2.0, within=3.0, adapts=False)
    found = prior.variances(*(torch.tensor(v).double() for v in ([9.0], [9.0], [[1.0, 2.0]])))
    assert [v.tolist() for v in found] == [[2.0], [3.0]]


def test_base_classes_without_noise_leave_the_factor_finite():
    prior = replace(broad_prior(4), between=2.0, within=0.0)
    found = prior.variances(*(torch.tensor(v).double() for v in ([3.0], [1.0], [[2.0, 2.0]])))
    assert 0.1 < prior.spread_factor(*found).item() < 10


@pytest.mark.parametrize("size", [1e-30, 1e-5, 1.0, 1e5, 1e30])
def test_embedding_keeps_directions_at_any_size(size, generator):
    matrix, mean, x = (
        torch.randn(*shape, 4, generator=generator).double() for shape in ((4,), (), (6,))
    )
    prior = replace(fixed_prior(1.0, 4), whitening=Whitening(size * mean, matrix))
    z = prior.embed(size * x)
    expected = torch.nn.functional.normalize((x - mean) @ matrix, dim=-1)
    torch.testing.assert_close(torch.nn.functional.normalize(z, dim=-1, eps=1e-60), expected)
    assert z.isfinite().all()


def test_a_prior_survives_its_file(base):
    prior = base.prior_
    twin = type(prior).restore(prior.facts(), prior.tensors())
    assert twin.facts() == prior.facts()
    assert twin.tensors().keys() == prior.tensors().keys()
    assert all(torch.equal(t, twin.tensors()[name]) for name, t in prior.tensors().items())
    for wrong in ({"mean": 0.0}, {"std": math.nan}, {"between": -1.0}, {"n_classes": 1}):
        with pytest.raises(ValueError, match="expected|a scale or a unit of 0"):
            replace(prior, **wrong).check()
