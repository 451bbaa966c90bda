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
    FEWEST,
    LEVELS,
    SIMILAR,
    Conformity,
    HeldOut,
    class_odds,
    learn_conformity,
    odds_to_probability,
)
from varscale.learn.quadrature import Law, Similarities

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
    for way in (5, 100, 5000):
        odds = class_odds(p, way)
        assert (odds.diff() > 0).all()
        torch.testing.assert_close(odds_to_probability(odds, way), p)
        for value, expected in ((1 / way, 1.0), (0.3, np.log(0.3 / 0.7) + np.log(way - 1) + 1)):
            expected *= np.log(way) ** 0.4 if expected > 0 else 1
            got = class_odds(torch.tensor([value]).double(), way).item()
            assert got == pytest.approx(expected)
    assert class_odds(torch.tensor([0.0, 1.0]), 5).isfinite().all()
    for way in (1, 2, FEWEST - 1):
        assert torch.equal(class_odds(p, way), class_odds(p, FEWEST))
        assert torch.equal(odds_to_probability(p, way), odds_to_probability(p, FEWEST))


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


def test_thresholds_of_sets():
    """Of the similarity those of each class's shots, of the probability the lowest."""
    learned = learn_conformity([held_out(), replace(held_out(seed=1), shot=5)])
    rows = [0, 0, 0, 1, 1]
    for error, place in ((0.1, 100), (1 - 0.9, 100), (0.57, 570)):
        floor, least = learned.set_thresholds(torch.tensor([1, 2, 4, 5, 80]), error)
        assert (floor < learned.set_similarity[rows, place]).all()  # leave room for rounding
        expected = learned.set_similarity[rows, place]
        torch.testing.assert_close(floor, expected, rtol=0, atol=2e-6)
        lowest = learned.set_odds[:, place].min().expand(5)
        assert (least < odds_to_probability(lowest, 5)).all()
        torch.testing.assert_close(class_odds(least, 5), lowest, rtol=0, atol=1e-4)
    sure = learn_conformity([replace(held_out(), odds=held_out().odds + 50)])
    for way, most in ((2, 0.9), (4, 0.9), (5, 0.99), (50, 0.99)):
        least = sure.set_thresholds(torch.full((way,), 2), 0.1)[1]
        assert least.tolist() == pytest.approx([most] * way, rel=1e-5)


@pytest.mark.filterwarnings("ignore:These classes are unlike the base classes")
def test_held_out_odds_are_those_of_the_classifier():
    """At one shot, where examples correct nothing, and with a scale that is certain."""
    prior = replace(scales()[0], spread=0.0)
    x, y = classes(seed=2000, n_classes=20, per_class=30)
    few = np.arange(len(y)) % 30 < 1
    clf = FewShotClassifier(prior=prior).fit(x[few].astype(np.float64), y[few])
    z = clf.task_.embed(torch.from_numpy(x[~few].astype(np.float64)))
    labels = torch.from_numpy(y[~few])[None]
    seen = (clf.task_.similarity(z)[None], labels, labels, clf.task_.place.spread[None])
    law = Law(prior.mean, prior.std, prior.shot_offset, prior.query_power, prior.top)
    p = clf.task_.probabilities(z)[None].gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(law.own_probability(Similarities(1, *seen)), p, rtol=1e-4, atol=1e-7)


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:These classes are unlike the base classes")
@pytest.mark.parametrize("way", [2, 4])
def test_sets_of_few_classes_that_are_easy_to_tell(way):
    """Nearly all probabilities are nearly 1; what is missed may not exceed what was asked for."""
    covered = []
    for seed in range(6):
        draw, y = np.random.default_rng(seed), np.repeat(np.arange(30), 8)
        x = draw.normal(size=(30, 32))[y] + 0.7 * draw.normal(size=(240, 32))
        prior = FewShotClassifier().fit(x, y).prior_
        y = np.repeat(np.arange(way), 100)
        few = np.arange(len(y)) % 100 < 3
        for _ in range(8):
            x = draw.normal(size=(way, 32))[y] + 0.7 * draw.normal(size=(len(y), 32))
            found = FewShotClassifier(prior=prior).fit(x[few], y[few]).predict_set(x[~few], 0.1)
            covered.append(found[np.arange(len(found)), y[~few]].mean())
    assert np.mean(covered) > 0.87
