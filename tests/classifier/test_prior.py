"""The prior of a classifier: what it says, and the law of its origin."""

import copy

import numpy as np
import pytest
import torch
from conftest import classes
from sklearn.base import clone

from varscale import FewShotClassifier

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested


def test_the_prior_says_what_it_is(base):
    prior = base.prior_
    assert prior.n_classes == 24
    assert prior.mean > 0
    assert 0 < prior.std < prior.mean
    assert prior.shot_offset > 0
    assert "learned on 24 classes" in repr(prior)
    assert clone(FewShotClassifier(prior=prior)).prior.mean == prior.mean  # sklearn's clone


def test_classes_that_the_scale_was_learned_on_have_less_of_it(base, tmp_path):
    x, y = classes(seed=3, n_classes=4, per_class=6)
    task = FewShotClassifier(prior=base.prior_).fit(x, y)
    assert base.own_.all()
    assert not task.own_.any()
    assert not FewShotClassifier(prior=20.0).fit(x, y).own_.any()
    own, new = (23 / 24) ** 0.75, (25 / 24) ** 0.75
    origin = [base.prior_.scale(mine and torch.tensor(mine)).origin for mine in (
        None, [True, True], [True, False]  # for all classes the same, so that it favours none
    )]  # fmt: skip
    assert [float(o) for o in origin] == pytest.approx([new, own, (own + new) / 2])

    ((_, log_p),) = base._probabilities(base.centres_)
    ((_, similarity),) = base._similarities(base.centres_)
    counts = base.counts_[0]
    factor = own * base.prior_.mean * counts / (counts + base.prior_.shot_offset)
    ours, theirs = log_p[0, 0] - log_p[0, 1], similarity[0, 0] - similarity[0, 1]
    assert ours.item() == pytest.approx(factor * theirs.item(), rel=1e-9)

    more = copy.deepcopy(base).partial_fit(x[:6] + 5, y[:6] - 1)  # a class before all others
    more.save(tmp_path / "file")
    for clf in (more, FewShotClassifier.load(tmp_path / "file")):
        assert clf.own_.tolist() == [False] + 24 * [True]

    alone = FewShotClassifier().fit(x[:13], y[:13])  # of the third class there is one example
    assert alone.own_.tolist() == [True, True, False]
    plain = FewShotClassifier(center=False).fit(x, y).prior_
    assert plain.scale().origin == 1


def test_a_class_that_comes_later_is_not_favoured():
    x, y = classes(n_classes=3, per_class=60, dim=64, seed=5, noise=2.0)
    few = np.arange(len(y)) % 60 < 5
    later = y == 2
    clf = FewShotClassifier().fit(x[few & ~later], y[few & ~later])
    answers = clf.partial_fit(x[few & later], y[few & later]).predict(x[~few])
    clf.own_[:] = True
    np.testing.assert_array_equal(answers, clf.predict(x[~few]))


def test_an_origin_of_zero_is_one_among_others():
    x, y = classes(n_classes=2, per_class=6, dim=64)
    x[6:] = -x[:6]
    expected = FewShotClassifier().fit(x + 1e-9, y).predict_proba(x[:3] + 1.0)
    np.testing.assert_allclose(
        FewShotClassifier().fit(x, y).predict_proba(x[:3] + 1.0), expected, atol=1e-6
    )
