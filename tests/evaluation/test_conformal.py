"""The promises of rejection and of sets, whatever classes there are."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from conftest import classes

from varscale import FewShotClassifier
from varscale.evaluation.conformal import (
    LEVELS,
    Conformity,
    class_quantiles,
    prediction_set,
)

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested


def test_quantiles_weigh_classes_alike():
    """A class with a thousand items counts as much as one with ten."""
    many, few = torch.zeros(1000), torch.ones(10)
    seen = [(1, torch.cat([many, few]), torch.tensor([0] * 1000 + [1] * 10))]
    quantiles = class_quantiles(seen).quantiles[0]
    assert quantiles[LEVELS // 2 - 5] == 0.0
    assert quantiles[LEVELS // 2 + 5] == 1.0


def test_threshold_is_the_corrected_quantile():
    values = torch.linspace(0, 1, LEVELS).double()
    classes = torch.tensor([49, 24])
    conformity = Conformity(torch.tensor([1, 5]), torch.stack([values, values + 1]), classes)
    one, five = (0.1 * 50 - 1) / 49, 1 + (0.1 * 25 - 1) / 24
    got = conformity.thresholds(torch.tensor([1, 4, 5, 80]), 0.1)
    assert got.tolist() == pytest.approx([one, one, five, five], abs=1 / (LEVELS - 1))
    assert (got <= torch.tensor([one, one, five, five]) + 1e-12).all()  # rounded down
    assert conformity.smallest_share(torch.tensor([1])) == 0.02
    assert conformity.smallest_share(torch.tensor([7, 9])) == 0.04
    assert conformity.thresholds(torch.tensor([1, 5]), 0.03).isfinite().tolist() == [True, False]


def test_only_classes_that_were_seen_count():
    """Small classes take no part in tasks of many shots, so they promise nothing about them."""
    x, y = classes(n_classes=30, per_class=30)
    kept = (y < 15) | (np.arange(len(y)) % 30 < 3)  # half of the classes keep three items
    conformity = FewShotClassifier().fit(x[kept], y[kept]).prior_.conformity
    assert conformity.shots.tolist() == [1, 2, 3, 5, 10, 20]
    assert conformity.n_classes[-1] == 15
    assert 15 <= conformity.n_classes[0] <= 30
    assert FewShotClassifier().fit(x, y).prior_.conformity.n_classes.tolist() == [30] * 6


@lru_cache
def scales():
    """What eight draws of base classes teach."""
    draws = [classes(seed=seed, n_classes=30, per_class=12) for seed in range(8)]
    return [FewShotClassifier().fit(x, y).prior_ for x, y in draws]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:These classes are unlike the base classes")
@pytest.mark.parametrize("shot", [1, 5])
def test_a_new_class_loses_at_most_its_share(shot):
    """Over many draws of base and new classes, which the promise is about."""
    rates = {0.1: [], 0.3: []}
    caught = []
    for seed, scale in enumerate(scales()):
        x, y = classes(seed=1000 + seed, n_classes=20, per_class=30)
        known = y < 10
        first = np.arange(len(y)) % 30 < shot
        clf = FewShotClassifier(prior=scale).fit(x[known & first], y[known & first])
        for share, values in rates.items():
            values.append(clf.is_unknown(x[known & ~first], share).mean())
        caught.append(clf.is_unknown(x[~known], 0.3).mean())
    for share, values in rates.items():
        assert np.mean(values) <= share + 0.02
    assert np.mean(caught) > np.mean(rates[0.3]) + 0.1  # what is new is rejected more often


def test_predict_answers_unknown():
    base = FewShotClassifier().fit(*classes())
    x, y = classes(seed=7, n_classes=6)
    clf = FewShotClassifier(prior=base.prior_).fit(x[y < 3], y[y < 3])
    answers = clf.predict(x, reject=0.1)
    assert answers.dtype == object
    unknown = clf.is_unknown(x, 0.1)
    assert (answers[unknown] == "unknown").all()
    assert (answers[~unknown] == clf.predict(x)[~unknown]).all()
    assert 0 < unknown.sum() < len(x)
    assert clf.known_score(x)[y < 3].mean() > clf.known_score(x)[y >= 3].mean()
    with pytest.warns(UserWarning, match="reject must be above 0.04"):
        assert not clf.is_unknown(x, 0.01).any()


def test_near_duplicates_are_not_rejected_for_their_rounding():
    draw, y = np.random.default_rng(0), np.repeat(np.arange(40), 10)
    centres = draw.normal(size=(40, 64))
    x = centres[y] + 1e-5 * draw.normal(size=(400, 64))
    clf = FewShotClassifier().fit(x, y)
    queries = centres[y] + 1e-5 * draw.normal(size=(400, 64))
    for dtype in (np.float64, np.float32):
        assert clf.is_unknown(queries.astype(dtype), 0.3).mean() <= 0.3


def test_a_set_leaves_out_the_least_likely_of_the_accepted_classes():
    p = torch.tensor([[0.5, 0.3, 0.12, 0.08], [0.42, 0.42, 0.08, 0.08], [0.08, 0.86, 0.05, 0.01]])
    p[1, 1] += 3e-8  # rounding
    p[1, 3] += 3e-9
    accepted = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]]).bool()
    for error, expected in {
        0.01: [[1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]],
        0.1: [[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0]],  # equal ones stay together
        0.21: [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0]],  # what rejects the query counts
        0.99: [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0]],  # never empty
    }.items():
        assert prediction_set(accepted, p, error).tolist() == torch.tensor(expected).bool().tolist()
    nothing = torch.zeros(1, 4).bool()
    assert not prediction_set(nothing, p[:1], 0.1).any()
    assert prediction_set(~nothing, 0 * p[:1], 0.1).all()  # too small to tell them apart


@pytest.mark.filterwarnings("ignore:These classes are unlike the base classes")
def test_sets_cover_the_true_class_and_are_small():
    """Over draws of base and new classes; sets by similarity alone are larger."""
    covered, size, accepted = [], [], []
    for seed, prior in enumerate(scales()):
        x, y = classes(seed=2000 + seed, n_classes=20, per_class=30)
        few = np.arange(len(y)) % 30 < 2
        clf = FewShotClassifier(prior=prior).fit(x[few], y[few])
        found = clf.predict_set(x[~few], 0.2)
        covered.append(found[np.arange(len(found)), y[~few]].mean())
        size.append(found.sum(1).mean())
        floor = prior.floor(torch.from_numpy(clf.counts_), 0.2)
        similar = clf.task_.similarity(clf.task_.embed(torch.from_numpy(x[~few])))
        accepted.append((similar >= floor).sum(-1).double().mean().item())
    assert np.mean(covered) > 0.8 - 0.03
    assert np.mean(size) < 0.8 * np.mean(accepted)
