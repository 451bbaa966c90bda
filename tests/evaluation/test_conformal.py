"""The promises of rejection and of sets, whatever classes there are."""

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import classes

from varscale import FewShotClassifier
from varscale.evaluation.conformal import (
    LEVELS,
    SIMILAR,
    Conformity,
    HeldOut,
    class_odds,
    learn_conformity,
    odds_to_probability,
)

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested


def test_quantiles_weigh_classes_alike():
    """A class with a thousand items counts as much as one with ten."""
    many, few = torch.zeros(1000), torch.ones(10)
    values, numbers = torch.cat([many, few]).double(), torch.tensor([0] * 1000 + [1] * 10)
    learned = learn_conformity([HeldOut(1, values, values + 5, numbers)])
    assert learned.quantiles[0, LEVELS // 2 - 5] == 0.0
    assert learned.quantiles[0, LEVELS // 2 + 5] == 1.0
    assert learned.set_odds[0, LEVELS // 2 - 5] == 5.0
    assert learned.set_odds[0, LEVELS // 2 + 5] == 6.0
    assert learned.n_classes.tolist() == [2]


def test_threshold_is_the_corrected_quantile():
    values = torch.linspace(0, 1, LEVELS).double()
    classes = torch.tensor([49, 24])
    tables = (torch.stack([values, values + 1]), *torch.zeros(2, 2, LEVELS).double())
    conformity = Conformity(torch.tensor([1, 5]), *tables, classes)
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


def test_odds_rank_probabilities_and_come_back():
    p = torch.linspace(1e-4, 1 - 1e-4, 99).double()
    for way in (2, 5, 100, 5000):
        odds = class_odds(p, way)
        assert (odds.diff() > 0).all()
        torch.testing.assert_close(odds_to_probability(odds, way), p)
        for value, expected in ((1 / way, 1.0), (0.3, np.log(0.3 / 0.7) + np.log(way - 1) + 1)):
            expected *= np.log(way) ** 0.4 if expected > 0 else 1
            got = class_odds(torch.tensor([value]).double(), way).item()
            assert got == pytest.approx(expected)
    assert class_odds(torch.tensor([0.0, 1.0]), 5).isfinite().all()
    assert class_odds(torch.ones(1), 1).isfinite().all()  # the only class
    assert odds_to_probability(class_odds(torch.ones(1), 1), 1) < 1


def held_out(n_classes=20, per_class=50, seed=0):
    """Queries whose similarity and odds agree by half."""
    draw = torch.Generator().manual_seed(seed)
    similarity, other = torch.randn(2, n_classes * per_class, generator=draw).double()
    numbers = torch.arange(n_classes).repeat_interleave(per_class)
    return HeldOut(2, similarity, similarity + 3 * other, numbers)


def test_of_held_out_queries_an_error_misses_its_share():
    seen = held_out()
    learned = learn_conformity([seen])
    kept = []
    for place in (1, 50, 100, 200, 700):
        similar = seen.similarity >= learned.set_similarity[0, place]
        likely = seen.odds >= learned.set_odds[0, place]
        missed = (~(similar & likely)).double().mean().item()
        assert place / 1000 - 1 / len(similar) <= missed <= place / 1000
        by_similarity, by_odds = ((~each).double().mean().item() for each in (similar, likely))
        assert by_similarity == pytest.approx(SIMILAR * by_odds, abs=2 / len(similar))
        kept.append(similar & likely)
    for larger, smaller in pairwise(kept):
        assert not (smaller & ~larger).any()


def test_thresholds_of_sets_are_those_of_a_classs_shots():
    learned = learn_conformity([held_out(), replace(held_out(seed=1), shot=5)])
    floor, least = learned.set_thresholds(torch.tensor([1, 2, 4, 5, 80]), 0.1)
    rows = [0, 0, 0, 1, 1]
    torch.testing.assert_close(floor, learned.set_similarity[rows, 100], rtol=0, atol=2e-6)
    odds = class_odds(least, 5)
    torch.testing.assert_close(odds, learned.set_odds[rows, 100], rtol=0, atol=1e-4)
    assert (floor < learned.set_similarity[rows, 100]).all()  # leave room for rounding
    assert (least < odds_to_probability(learned.set_odds[rows, 100], 5)).all()


@pytest.mark.filterwarnings("ignore:These classes are unlike the base classes")
def test_sets_cover_the_true_class_and_are_small():
    """Over draws of base and new classes; those by similarity alone are larger."""
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
    assert np.mean(covered) == pytest.approx(0.8, abs=0.03)
    assert np.mean(size) < 0.7 * np.mean(accepted)
