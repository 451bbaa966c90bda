"""What base classes teach: the metric, its scale and the shot law."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import classes

from varscale import FewShotClassifier
from varscale.classifier import learner
from varscale.classifier.learner import learn_metric, learn_prior
from varscale.classifier.similarities import draw_similarities
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:These classes are unlike the base classes")
@pytest.mark.parametrize(("way", "shot"), [(5, 1), (5, 5), (15, 1), (15, 10)])
def test_probabilities_are_calibrated_on_unseen_classes_at_any_way_and_shot(base, way, shot):
    x, y = classes(seed=1)
    _, nll, ece = few_shot(base, x, y, way=way, shot=shot)
    assert ece < (0.08 if shot == 1 else 0.05)  # one draw of base classes; a fixed law has 0.08 too
    for factor in (0.5, 2.0):  # neither a smaller nor a larger scale does better
        worse = FewShotClassifier()
        worse.prior_ = replace(base.prior_, mean=factor * base.prior_.mean)
        least = nll if shot == 1 else 0.97 * nll  # many examples correct the scale themselves
        assert few_shot(worse, x, y, way=way, shot=shot)[1] > least


@pytest.mark.slow
def test_whitening_pays_on_unseen_classes(base, monkeypatch):
    x, y = classes(seed=1)
    monkeypatch.setattr(learner, "MOST_DIMENSIONS", 15)
    plain = FewShotClassifier().fit(*classes())
    assert base.prior_.whitening.matrix is not None
    assert plain.prior_.whitening.matrix is None
    raw, white = (few_shot(clf, x, y, way=10, shot=2)[1] for clf in (plain, base))
    assert white < raw


@pytest.mark.slow
def test_the_units_of_the_embeddings_do_not_matter(base):
    x, y = classes()
    unseen = classes(seed=1)
    tasks = {"way": 10, "shot": 2, "episodes": 50}
    reference = few_shot(base, *unseen, **tasks)[1]
    for unit in (1e3, 1e-3):
        clf = FewShotClassifier().fit(unit * x, y)
        nll = few_shot(clf, unit * unseen[0], unseen[1], **tasks)[1]
        assert nll == pytest.approx(reference, rel=1e-4), unit


@pytest.mark.parametrize("whiten", [False, True])
def test_variances_within_and_between_classes_in_plain_loops(whiten):
    x, y = classes(n_classes=5, per_class=8, dim=4)
    kept = np.arange(len(y)) % 8 < 2 + y  # of 2 to 6 items
    x, y = x[kept], y[kept]
    prior = learn_metric(torch.from_numpy(x), y, 0.9 if whiten else None)
    z = x - np.mean([x[y == k].mean(0) for k in range(5)], axis=0)
    if whiten:
        z = z @ prior.whitening.matrix.numpy()
    within = np.mean([z[y == k].var(0, ddof=1).sum() for k in range(5)])
    spread = np.stack([z[y == k].mean(0) for k in range(5)]).var(0, ddof=1).sum()
    assert prior.within == pytest.approx(within)
    assert prior.between == pytest.approx(spread - within * np.mean([1 / n for n in range(2, 7)]))
    assert prior.mean == 1


def test_classes_that_do_not_differ_have_no_variance_between_them():
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(20, 4)))
    y = np.repeat(np.arange(10), 2)
    x = x - torch.stack([x[y == k].mean(0) for k in range(10)])[torch.from_numpy(y)]
    assert learn_metric(x, y, None).between == 0


def test_the_scale_is_learned_on_classes_that_the_metric_has_not_seen(monkeypatch):
    x, y = classes(n_classes=12, per_class=4)
    seen, asked = [], []

    def metric(items, *rest, **more):
        seen.append({tuple(row) for row in items.tolist()})
        return learn_metric(items, *rest, **more)

    def draw(prior, items, *rest):
        asked.append({tuple(row) for row in items.tolist()})
        return draw_similarities(prior, items, *rest)

    monkeypatch.setattr(learner, "learn_metric", metric)
    monkeypatch.setattr(learner, "draw_similarities", draw)
    learn_prior(torch.from_numpy(x), y, seed=0)
    whole = {tuple(row) for row in x.tolist()}
    again = 2 * (len(learner.SHRINKAGES) - 1)  # the first deal, once for each shrinkage
    assert len(asked) == 2 * learner.DEALS + again  # two folds of six classes
    for known, fold in zip(seen, asked, strict=False):
        assert known | fold == whole
        assert not known & fold
    assert seen[len(asked) :] == [whole]


@pytest.mark.parametrize("seconds", [0, 1])
def test_fewer_than_two_classes_of_two_examples_are_a_guess_and_say_so(seconds):
    x, y = classes(n_classes=4, per_class=2)
    few = np.flatnonzero((np.arange(8) % 2 == 0) | (y < seconds))
    x, y = x[few], y[few]
    with pytest.warns(UserWarning, match="which is a guess"):
        clf = FewShotClassifier().fit(x, y)
    assert "a guess" in repr(clf.prior_)
    assert (clf.predict(x) == y).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.partial_fit(np.concatenate([x, x]), np.concatenate([y, y]))


@pytest.mark.parametrize("counts", [[2, 2], [1, 2, 2], [1, 3, 40], [2] * 12, [1] * 5 + [30] * 12])
def test_classes_of_any_size_are_learned_from(counts):
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(len(counts)), counts)
    x = draw.normal(size=(len(counts), 8))[y] + 0.5 * draw.normal(size=(len(y), 8))
    clf = FewShotClassifier().fit(x, y)
    several = sum(n > 1 for n in counts)
    assert clf.prior_.n_classes == (several if several >= 10 else 0)
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


@pytest.mark.parametrize(("n_classes", "count", "most"), [(2, 2, 1.35), (3, 3, 1.25)])
def test_of_a_few_examples_alone_it_learns_nearly_the_best_scale(n_classes, count, most):
    ours, fixed = [], []
    for clf, x, y in alone(n_classes, count, noise=2.0):
        similarity = clf.task_.similarity(clf.task_.embed(torch.from_numpy(x)))
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


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_learns_where_gradients_are_off(mode):
    x, y = classes(n_classes=12, per_class=5)
    expected = FewShotClassifier().fit(x, y).predict_proba(x)
    with mode():
        clf = FewShotClassifier().fit(torch.from_numpy(x), y)
    np.testing.assert_array_equal(clf.predict_proba(x), expected)


@pytest.mark.parametrize("useful", [True, False])
def test_held_out_classes_tell_how_strongly_to_whiten(useful):
    """Noise within classes that the base classes share, or that each class has for itself."""
    rng = np.random.default_rng(0)
    sizes = np.ones((20, 12))
    if useful:
        sizes[:, :3] = 6
    else:
        for k in range(20):
            sizes[k, rng.permutation(12)[:3]] = 6
    means = rng.normal(size=(20, 12)) * (1 if useful else sizes.mean(0) * 2)
    x = (means[:, None] + sizes[:, None] * rng.normal(size=(20, 30, 12))).reshape(-1, 12)
    y = np.repeat(np.arange(20), 30)
    tried = [learn_metric(torch.from_numpy(x), y, s).whitening for s in learner.SHRINKAGES]
    found = learn_prior(torch.from_numpy(x), y, seed=0).whitening
    same = [torch.equal(found.matrix, each.matrix) for each in tried]
    assert same == [useful, not useful]
