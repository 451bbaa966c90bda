"""The promise of rejection: at most so many of the known, whatever classes there are."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from conftest import classes

from varscale import FewShotClassifier
from varscale.evaluation.conformal import LEVELS, Conformity, class_quantiles

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
