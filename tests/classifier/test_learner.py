"""What base classes teach: the metric, its scale and the shot law."""

import numpy as np
import pytest
import torch
from conftest import classes

from varscale import FewShotClassifier
from varscale.classifier import learner
from varscale.classifier.learner import PriorLearner
from varscale.data import EpisodeSampler
from varscale.evaluation.metrics import calibration_bins, expected_calibration_error

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested


def few_shot(clf, x, y, *, way, shot, episodes=200, query=10, seed=0):
    """Accuracy, NLL and ECE of the fitted scale on tasks of other classes."""
    sampler = EpisodeSampler(y, n_way=way, n_shot=shot, n_query=query, seed=seed, stream="test")
    hits, nll, bins = [], [], torch.zeros(3, 15, dtype=torch.float64)
    for i in range(episodes):
        rows = sampler[i]
        task = FewShotClassifier(prior=clf.prior_)
        task.fit(x[rows.support[0]], rows.support_labels[0].numpy())
        p = torch.from_numpy(task.predict_proba(x[rows.query[0]]))
        label = rows.query_labels[0]
        top, guess = p.max(-1)
        hits.append((guess == label).double().mean())
        nll.append(-p.gather(-1, label[:, None]).log().mean())
        bins += calibration_bins(top, guess == label)
    ece = expected_calibration_error(bins)
    return float(torch.stack(hits).mean()), float(torch.stack(nll).mean()), ece


@pytest.mark.parametrize(("way", "shot"), [(5, 1), (5, 5), (15, 1), (15, 10)])
def test_probabilities_are_calibrated_on_unseen_classes_at_any_way_and_shot(base, way, shot):
    x, y = classes(seed=1)
    _, nll, ece = few_shot(base, x, y, way=way, shot=shot)
    assert ece < 0.05
    for factor in (0.5, 2.0):  # neither a smaller nor a larger scale does better
        scale = base.prior_
        other = type(scale)(**{**vars(scale), "mean": factor * scale.mean})
        worse = FewShotClassifier(prior=other)
        worse.prior_ = other
        assert few_shot(worse, x, y, way=way, shot=shot)[1] > nll


@pytest.mark.slow
def test_whitening_and_weights_pay_on_unseen_classes(base):
    x, y = classes(seed=1)
    plain = FewShotClassifier(center=False, shrinkage=None).fit(*classes())
    weighted = FewShotClassifier(scaler="d-svs", steps=50).fit(*classes())
    raw, white, many = (few_shot(c, x, y, way=10, shot=2)[0] for c in (plain, base, weighted))
    assert base.prior_.metric.whitening.matrix is not None
    assert plain.prior_.metric.whitening.matrix is None
    assert white > raw + 0.02
    assert many > raw + 0.02
    assert len(weighted.prior_.metric.weight) == 16
    assert weighted.prior_.metric.weight.mean() == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("scaler", ["svs", "d-svs"])
def test_the_start_and_the_units_of_the_embeddings_do_not_matter(scaler):
    x, y = classes()
    unseen = classes(seed=1)
    few = {"scaler": scaler, "steps": 30}
    tasks = {"way": 10, "shot": 1, "episodes": 50}
    reference = few_shot(FewShotClassifier(**few).fit(x, y), *unseen, **tasks)[1]
    for init, unit in ((1.0, 1e3), (1000.0, 1e-3)):
        clf = FewShotClassifier(**few, init=init).fit(unit * x, y)
        nll = few_shot(clf, unit * unseen[0], unseen[1], **tasks)[1]
        assert nll == pytest.approx(reference, rel=0.005), (init, unit)


def test_one_shot_of_each_class_is_a_guess_and_says_so():
    x, y = classes(n_classes=4, per_class=1)
    with pytest.warns(UserWarning, match="which is a guess"):
        clf = FewShotClassifier().fit(x, y)
    assert "not learned" in repr(clf.prior_)
    assert clf.predict(x).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("counts", [[2, 2], [1, 2, 2], [1, 3, 40], [2] * 12, [1] * 5 + [30] * 12])
def test_classes_of_any_size_are_learned_from(counts):
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(len(counts)), counts)
    x = draw.normal(size=(len(counts), 8))[y] + 0.5 * draw.normal(size=(len(y), 8))
    for scaler in ("svs", "d-svs"):
        clf = FewShotClassifier(scaler=scaler, steps=20).fit(x, y)
        assert clf.prior_.n_classes == sum(n > 1 for n in counts)
        p = clf.predict_proba(x)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(1), 1)


@pytest.mark.parametrize("per_class", [2, 3, 5])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_little_data_does_not_make_it_sure(n_classes, per_class):
    """The prior holds where the data do not: not much worse than a scale of 20."""
    nll = {None: [], 20.0: []}
    for seed in range(6):
        x, y = classes(n_classes=n_classes, per_class=20, seed=seed, common=0.0)
        few = np.arange(len(y)) % 20 < per_class
        for scale, values in nll.items():
            p = FewShotClassifier(prior=scale).fit(x[few], y[few]).predict_proba(x[~few])
            values.append(-np.log(p[np.arange(len(p)), y[~few]].clip(1e-12)).mean())
    assert np.mean(nll[None]) < np.mean(nll[20.0]) + (0.5 if per_class == 2 else 0.15)


def alone(n_classes, counts, noise):
    """Twenty draws of classes: classifiers of a few examples and nothing else, and queries."""
    for seed in range(20):
        x, y = classes(n_classes=n_classes, per_class=140, dim=64, seed=seed, noise=noise)
        few = np.arange(len(y)) % 140 < np.broadcast_to(counts, n_classes)[y]
        asked = np.arange(len(y)) % 140 >= 100
        yield FewShotClassifier().fit(x[few], y[few]), x[asked], y[asked]


@pytest.mark.parametrize(("n_classes", "count", "most"), [(2, 2, 1.35), (3, 3, 1.15)])
def test_of_a_few_examples_alone_it_learns_nearly_the_best_scale(n_classes, count, most):
    ours, fixed = [], []
    for clf, x, y in alone(n_classes, count, noise=2.0):
        similarity = torch.cat([part for _, part in clf._similarities(x)])
        scales = torch.logspace(0.3, 2, 30, dtype=torch.float64).view(-1, 1, 1)
        log_p = (scales * similarity).log_softmax(-1)  # (scale, query, way)
        fixed.append(-log_p[:, np.arange(len(y)), y].mean(1))
        ours.append(-np.log(clf.predict_proba(x)[np.arange(len(y)), y]).mean())
    assert np.mean(ours) < most * torch.stack(fixed).mean(0).min().item()


def test_one_class_of_many_examples_leaves_the_others_alone():
    equal, unequal = (
        np.mean([clf.score(x, y) for clf, x, y in alone(4, counts, noise=1.0)])
        for counts in (3, [100, 3, 3, 3])
    )
    assert unequal > equal - 0.02


def test_the_origin_is_a_mean_of_own_classes_or_of_other_folds():
    centred = PriorLearner()
    assert centred._origin_factor(5) == pytest.approx(0.8**0.75)  # the origin is their own mean
    assert centred._origin_factor(20) == pytest.approx((1 + 1 / 15) ** 0.75)  # of the other folds
    assert PriorLearner(center=False)._origin_factor(5) == 1


def test_a_search_that_stops_too_early_goes_on():
    x, y = classes(seed=1)
    near, far = (FewShotClassifier(init=start).fit(x, y).prior_ for start in (20.0, 300.0))
    assert far.mean == pytest.approx(near.mean, rel=1e-3)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_learns_where_gradients_are_off(mode):
    x, y = classes(n_classes=12, per_class=5)
    for options in ({}, {"scaler": "d-svs", "steps": 5}):
        expected = FewShotClassifier(**options).fit(x, y).predict_proba(x)
        with mode():
            clf = FewShotClassifier(**options).fit(torch.from_numpy(x), y)
        np.testing.assert_array_equal(clf.predict_proba(x), expected)


@pytest.mark.slow
def test_choosing_what_the_classes_are_worth_on_held_out_ones(monkeypatch):
    x, y = classes(n_classes=16, per_class=12)
    asked = []

    def rule(losses):
        asked.append(losses)
        return 2

    monkeypatch.setattr(learner, "simplest_good", rule)
    chosen = FewShotClassifier(scaler="d-svs", effective_tasks="cv", steps=20).fit(x, y)
    fixed = FewShotClassifier(scaler="d-svs", effective_tasks=4.0, steps=20).fit(x, y)  # 1, 2, 4
    assert torch.equal(chosen.prior_.metric.weight, fixed.prior_.metric.weight)
    assert asked[0].shape == (3, 16)
    assert (asked[0] > 0).all()
