"""The scikit-learn estimator: its contract, its promises, and what people give to it."""

import copy
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import varscale
from varscale import FewShotClassifier
from varscale.classifier import learner as scale_learner
from varscale.classifier.similarities import Similarities
from varscale.data import EpisodeSampler
from varscale.evaluation.metrics import calibration_bins, expected_calibration_error

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested

CHECKS = """
from sklearn.utils.estimator_checks import check_estimator
from varscale import FewShotClassifier
results = check_estimator(FewShotClassifier(), on_skip=None, on_fail="raise")
assert {r["status"] for r in results} == {"passed"}, results
print(len(results))
"""


def classes(n_classes=24, per_class=20, dim=16, seed=0, noise=1.0, common=3.0):
    """Gaussian classes with a part in common and unequal spreads of the dimensions."""
    draw = np.random.default_rng(seed)
    spread = np.linspace(0.3, 1.7, dim)
    y = np.repeat(np.arange(n_classes), per_class)
    means = draw.normal(size=(n_classes, dim))
    x = means[y] + noise * spread * draw.normal(size=(len(y), dim)) + common
    return x, y


@pytest.fixture(scope="module")
def base():
    return FewShotClassifier().fit(*classes())


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
def test_every_check_of_scikit_learn_passes():
    """In a process of its own: the checks of array libraries ask for it at start."""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONWARNINGS": "ignore"}
    result = subprocess.run(
        [sys.executable, "-c", CHECKS], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 50


def test_the_front_door_and_its_absence():
    assert varscale.FewShotClassifier is FewShotClassifier
    with pytest.raises(AttributeError, match="no attribute 'FewShotClasifier'"):
        _ = varscale.FewShotClasifier


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
    for init_scale, unit in ((1.0, 1e3), (1000.0, 1e-3)):
        clf = FewShotClassifier(**few, init=init_scale).fit(unit * x, y)
        nll = few_shot(clf, unit * unseen[0], unseen[1], **tasks)[1]
        assert nll == pytest.approx(reference, rel=0.005), (init_scale, unit)


def test_the_scale_says_what_it_is(base):
    scale = base.prior_
    assert scale.n_classes == 24
    assert scale.mean > 0
    assert 0 < scale.std < scale.mean
    assert scale.shot_offset > 0
    assert "learned on 24 classes" in repr(scale)
    assert (
        clone(FewShotClassifier(prior=scale)).scale.mean == scale.mean
    )  # survives sklearn's clone


def test_partial_fit_equals_fit_and_relearns_nothing(base):
    x, y = classes(seed=2, n_classes=9)
    whole = FewShotClassifier(prior=base.prior_).fit(x, y)
    parts = FewShotClassifier(prior=base.prior_).fit(x[y < 4], y[y < 4])
    order = np.random.default_rng(0).permutation(np.flatnonzero(y >= 4))
    for part in np.array_split(order, 7):
        parts.partial_fit(x[part], y[part])
    parts.partial_fit(x[:5], y[:5])
    twice = FewShotClassifier(prior=base.prior_).fit(np.r_[x, x[:5]], np.r_[y, y[:5]])
    assert parts.prior_ is base.prior_
    assert parts.counts_.tolist() == twice.counts_.tolist()
    np.testing.assert_allclose(parts.predict_proba(x), twice.predict_proba(x), atol=1e-12)
    assert not np.allclose(parts.predict_proba(x), whole.predict_proba(x), atol=1e-6)


def test_labels_may_be_anything(base):
    x, y = classes(seed=2, n_classes=3)
    for names in (["b", "a", "ü"], [-5, 7, 2**40], [True, False, True]):
        labels = np.array(names)[y]
        clf = FewShotClassifier(prior=base.prior_).fit(x, labels)
        assert clf.classes_.tolist() == sorted(set(names))
        assert clf.predict(x).dtype == labels.dtype
        assert (clf.predict(x) == labels).mean() > 0.4


def test_unequal_shots_do_not_favour_the_larger_class(base):
    x, y = classes(n_classes=30, per_class=60, seed=3)
    predicted = np.zeros(2)
    for i in range(0, 30, 2):
        few, many = np.flatnonzero(y == i), np.flatnonzero(y == i + 1)
        supports = np.r_[few[:1], many[:30]]
        clf = FewShotClassifier(prior=base.prior_).fit(x[supports], y[supports])
        p = clf.predict_proba(x[np.r_[few[30:], many[30:]]])
        predicted += p.sum(0)
    share = predicted[0] / predicted.sum()
    assert 0.4 < share < 0.6


def test_many_classes_of_one_example_are_no_regression(base):
    x, y = classes(seed=2, n_classes=60, per_class=1)
    FewShotClassifier(prior=base.prior_).fit(x, y)  # scikit-learn would warn: warnings are errors


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


def test_classes_that_the_scale_was_learned_on_have_less_of_it(base, tmp_path):
    x, y = classes(seed=3, n_classes=4, per_class=6)
    task = FewShotClassifier(prior=base.prior_).fit(x, y)
    assert base.own_.all()
    assert not task.own_.any()
    assert not FewShotClassifier(prior=20.0).fit(x, y).own_.any()
    count = torch.full((2,), 20.0)
    many = base.prior_.mean * 20 / (20 + base.prior_.shot_offset)
    own, new = many * (23 / 24) ** 0.75, many * (25 / 24) ** 0.75
    at = base.prior_.at_shots
    assert at(count).tolist() == pytest.approx([new, new])
    assert at(count, torch.tensor([True, True])).tolist() == pytest.approx([own, own])
    both = (own + new) / 2  # for all classes the same, so that it favours none
    assert at(count, torch.tensor([True, False])).tolist() == pytest.approx([both, both])

    logits = base._logits(torch.eye(24))  # a query as similar to one class as can be
    assert (logits[0, 0] - logits[0, 1]).item() == pytest.approx(own, rel=1e-5)

    more = copy.deepcopy(base).partial_fit(x[:6] + 5, y[:6] - 1)  # a class before all others
    more.save(tmp_path / "file")
    for clf in (more, FewShotClassifier.load(tmp_path / "file")):
        assert clf.own_.tolist() == [False] + 24 * [True]

    alone = FewShotClassifier().fit(x[:13], y[:13])  # of the third class there is one example
    assert alone.own_.tolist() == [True, True, False]
    plain = FewShotClassifier(center=False).fit(x, y).prior_
    assert plain.at_shots(count).tolist() == pytest.approx(
        2 * [plain.mean * 20 / (20 + plain.shot_offset)]
    )


def test_what_is_believed_of_the_scale_before_anything_is_seen():
    learner = scale_learner.PriorLearner()
    nothing = Similarities(
        1, torch.zeros(1, 4, 2), torch.zeros(1, 4).long(), torch.zeros(1, 4).long()
    )
    assert learner._scale([nothing], 2).mean == pytest.approx(20, rel=0.01)
    assert learner._origin_factor(5) == pytest.approx(0.8**0.75)  # the origin is their own mean
    assert learner._origin_factor(20) == pytest.approx((1 + 1 / 15) ** 0.75)  # of the other folds
    assert scale_learner.PriorLearner(center=False)._origin_factor(5) == 1


def test_a_factor_is_taken_out_of_the_scale(generator):
    similarity = torch.rand(50, 8, 4, generator=generator)
    labels = torch.randint(4, (50, 8), generator=generator)
    similarity.scatter_add_(-1, labels.unsqueeze(-1), torch.full((50, 8, 1), 0.3))
    seen, learner = [Similarities(5, similarity, labels, labels)], scale_learner.PriorLearner()
    plain, halved = (learner._scale(seen, 10_000, factor) for factor in (1.0, 0.5))
    ours, theirs = (s.mean * 5 / (5 + s.shot_offset) for s in (halved, plain))
    assert ours == pytest.approx(2 * theirs, rel=1e-3)


def test_a_search_that_stops_too_early_goes_on():
    x, y = classes(seed=1)
    near, far = (FewShotClassifier(init=start).fit(x, y).prior_ for start in (20.0, 300.0))
    assert far.mean == pytest.approx(near.mean, rel=1e-3)


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


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_learns_where_gradients_are_off(mode):
    x, y = classes(n_classes=12, per_class=5)
    for options in ({}, {"scaler": "d-svs", "steps": 5}):
        expected = FewShotClassifier(**options).fit(x, y).predict_proba(x)
        with mode():
            clf = FewShotClassifier(**options).fit(torch.from_numpy(x), y)
        np.testing.assert_array_equal(clf.predict_proba(x), expected)


def test_arrays_of_any_layout(base):
    x, y = classes(seed=2, n_classes=4)
    expected = FewShotClassifier(prior=base.prior_).fit(x, y).predict_proba(x)
    frozen = x.copy()
    frozen.flags.writeable = False
    for other in (x[::-1], np.asfortranarray(x)[::-1], frozen[::-1]):
        clf = FewShotClassifier(prior=base.prior_).fit(other, y[::-1])
        np.testing.assert_allclose(clf.predict_proba(other), expected[::-1], atol=1e-10)


@pytest.mark.usefixtures("as_user")
def test_seeds_and_numbers_of_numpy(tmp_path):
    x, y = classes(n_classes=12)
    zero, one = (FewShotClassifier(random_state=seed).fit(x, y).prior_.mean for seed in (0, 1))
    assert zero != one
    assert FewShotClassifier().fit(x, y).prior_.mean == zero
    clf = FewShotClassifier(
        random_state=np.random.RandomState(3),
        shrinkage=np.float32(0.5),
        init=np.float32(20),
        n_tasks=np.int64(3),
        scaler="d-svs",
        steps=2,
    ).fit(x, y)
    clf.save(tmp_path / "m")
    assert FewShotClassifier.load(tmp_path / "m").get_params()["n_tasks"] == 3


def test_useless_features_give_even_odds():
    x, y = np.ones((40, 6)), np.repeat(np.arange(4), 10)
    p = FewShotClassifier().fit(x, y).predict_proba(x)
    np.testing.assert_allclose(p, 0.25, atol=1e-6)
    zeros = FewShotClassifier(prior=10.0).fit(np.zeros((4, 6)), np.arange(4))
    np.testing.assert_allclose(zeros.predict_proba(np.zeros((2, 6))), 0.25)


def test_half_precision_is_computed_with_in_single(base):
    x, y = classes(seed=2, n_classes=4)
    half = FewShotClassifier(prior=base.prior_).fit(x.astype(np.float16), y)
    p = half.predict_proba(x.astype(np.float16))
    assert p.dtype == np.float32
    single = FewShotClassifier(prior=base.prior_).fit(x, y).predict_proba(x)
    np.testing.assert_allclose(p, single, atol=0.02)
    again = FewShotClassifier().fit(classes()[0].astype(np.float16), classes()[1])
    assert again.prior_.mean == pytest.approx(base.prior_.mean, rel=0.02)


def test_thousands_of_classes_in_bounded_memory(monkeypatch):
    """Beyond the answer itself, predicting holds one chunk at a time."""
    from varscale.classifier import estimator

    x, y = classes(n_classes=5000, per_class=2, dim=8)
    clf = FewShotClassifier(prior=20.0).fit(x, y)
    whole = clf.predict_proba(x[:64])
    seen = []
    original = type(clf.prior_.metric).__call__
    monkeypatch.setattr(
        type(clf.prior_.metric),
        "__call__",
        lambda self, q, c: seen.append(len(q)) or original(self, q, c),
    )
    monkeypatch.setattr(estimator, "CHUNK", 5008 * 10)
    np.testing.assert_allclose(clf.predict_proba(x[:64]), whole, atol=1e-12)
    assert max(seen) == 10
    assert sum(seen) == 64
    assert (clf.predict(x[:64]) == clf.classes_[whole.argmax(1)]).all()


@pytest.mark.slow
def test_it_works_among_other_estimators():
    x, y = classes(n_classes=12)
    pipeline = make_pipeline(StandardScaler(), FewShotClassifier())
    assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.5
    search = GridSearchCV(
        FewShotClassifier(), {"shrinkage": [None, 0.5], "center": [True, False]}, cv=2
    )
    assert search.fit(x, y).best_score_ > 0.5


@pytest.mark.parametrize("scaler", ["svs", "d-svs"])
def test_saved_and_loaded_it_answers_alike(scaler, tmp_path):
    x, y = classes()
    names = np.array([f"class {k}" for k in range(24)])[y]
    clf = FewShotClassifier(scaler=scaler, steps=20).fit(x, names)
    clf.save(tmp_path / "model.safetensors")
    twin = FewShotClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(twin.predict_proba(x), clf.predict_proba(x))
    assert np.array_equal(twin.predict(x, reject=0.05), clf.predict(x, reject=0.05))
    assert repr(twin.prior_) == repr(clf.prior_)
    assert twin.get_params()["scaler"] == scaler
    twin.partial_fit(x[:3] + 9, ["new and longer than the others"] * 3)
    assert "new and longer than the others" in twin.classes_
    refitted = clone(FewShotClassifier.load(tmp_path / "model.safetensors")).fit(x[:4], y[:4])
    assert refitted.prior_.mean == clf.prior_.mean  # what was loaded keeps its scale


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("centres", lambda t: t * torch.nan),
        ("centres", lambda t: t[:, 0]),
        ("centres", lambda t: t[1:]),
        ("counts", lambda t: t * 0),
        ("matrix", lambda t: t[:3]),
        ("mean", lambda t: t[:3]),
        ("weight", lambda t: -t),
        ("quantiles", lambda t: t * torch.nan),
        ("quantiles", lambda t: t[:, :5]),
        ("fold_classes", lambda t: t * 0),
        ("classes", lambda c: c[::-1]),
        ("classes", lambda c: ["a"] * len(c)),
        ("scale", lambda s: {**s, "mean": -1.0}),
        ("scale", lambda s: {**s, "mean": float("nan")}),
        ("scale", lambda s: {**s, "shot_offset": "x"}),
        ("scale", lambda s: {}),
        ("scale", lambda s: {**s, "n_classes": 0.5}),
        ("scale", lambda s: {**s, "n_classes": 1}),
        ("scale", lambda s: {**s, "n_classes": 0}),
        ("scale", lambda s: {**s, "centred": 0.5}),
        ("params", lambda p: {**p, "more": 1}),
        ("features", lambda f: ["a"]),
        ("features", lambda f: 3),
        ("own", lambda t: t[1:]),
        ("own", lambda t: t.long()),
        ("own", lambda t: t.double()),
    ],
)
def test_files_that_were_tampered_with_are_refused(base, tmp_path, name, change):
    import json

    from safetensors import safe_open
    from safetensors.torch import save_file

    base.save(tmp_path / "m")
    with safe_open(tmp_path / "m", framework="pt") as file:
        facts = json.loads(file.metadata()["varscale"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if name in tensors:
        tensors[name] = change(tensors[name]).contiguous()
    else:
        facts[name] = change(facts[name])
    save_file(tensors, tmp_path / "bad", {"varscale": json.dumps(facts)})
    with pytest.raises(ValueError, match="no classifier that varscale saved"):
        FewShotClassifier.load(tmp_path / "bad")


def test_files_that_are_no_classifiers_are_refused(tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(ValueError, match="got no file"):
        FewShotClassifier.load(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    for name in ("text", "other"):
        with pytest.raises(ValueError, match="no classifier that varscale saved"):
            FewShotClassifier.load(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": -1.0}, "scale > 0"),
        ({"scaler": "dsvs"}, "Did you mean 'd-svs'"),
        ({"shrinkage": 2.0}, "shrinkage in 0..1"),
        ({"shrinkage": "yes"}, "shrinkage in 0..1"),
        ({"n_tasks": 0}, "n_tasks > 0"),
        ({"init_scale": 0.0}, "init_scale > 0"),
        ({"steps": 0}, "steps >= 1"),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FewShotClassifier(**options).fit(*classes(n_classes=3))


@pytest.mark.usefixtures("as_user")
def test_wrong_data_are_refused(base):
    x, y = classes(n_classes=3)
    with pytest.raises(ValueError, match="at least 2 classes"):
        FewShotClassifier().fit(x[:5], y[:5])
    with pytest.raises(ValueError, match="embeddings of 16 numbers"):
        FewShotClassifier(prior=base.prior_).fit(x[:, :4], y)
    with pytest.raises(ValueError, match="NaN"):
        FewShotClassifier().fit(np.where(x > 3, np.nan, x), y)
    with pytest.raises(ValueError, match=r"no number above 1e\+300"):
        FewShotClassifier().fit(1e305 * x.astype(np.float64), y)
    clf = FewShotClassifier(prior=base.prior_).fit(x, y)
    with pytest.raises(ValueError, match="Expected classes like 0, got 'three'"):
        clf.partial_fit(x[:1], ["three"])
    with pytest.raises(ValueError, match="Expected classes like 'a', got 1"):
        FewShotClassifier(prior=10.0).fit(x, np.array(["a", "b", "c"])[y]).partial_fit(x[:1], [1])
    with pytest.raises(ValueError, match="reject between 0 and 1"):
        clf.predict(x, reject=5)
    for wrong in (clf, "base.safetensors"):
        with pytest.raises(ValueError, match="a number or a classifier's scale_"):
            FewShotClassifier(prior=wrong).fit(x, y)
    named = FewShotClassifier(prior=base.prior_).fit(x, np.array(["a", "b", "unknown"])[y])
    with pytest.raises(ValueError, match="no class called 'unknown'"):
        named.predict(x, reject=0.1)
    with pytest.raises(ValueError, match="at least 10 classes"):
        FewShotClassifier(prior=10.0).fit(x, y).predict(x, reject=0.1)


@pytest.mark.slow
def test_choosing_what_the_classes_are_worth_on_held_out_ones(monkeypatch):
    x, y = classes(n_classes=16, per_class=12)
    asked = []

    def rule(losses):
        asked.append(losses)
        return 2

    monkeypatch.setattr(scale_learner, "simplest_good", rule)
    chosen = FewShotClassifier(scaler="d-svs", n_tasks="cv", steps=20).fit(x, y)
    fixed = FewShotClassifier(scaler="d-svs", n_tasks=4.0, steps=20).fit(x, y)  # 1, 2, 4
    assert torch.equal(chosen.prior_.metric.weight, fixed.prior_.metric.weight)
    assert asked[0].shape == (3, 16)
    assert (asked[0] > 0).all()


def test_losses_of_base_classes_in_a_plain_loop(generator):
    scale = scale_learner.Scale(mean=3.0, std=0.1, shot_offset=0.5)
    found: dict[int, list[float]] = {}
    seen = []
    for shot, way in ((1, 2), (4, 3)):
        similarity = torch.rand(2, 5, way, generator=generator)
        labels = torch.randint(way, (2, 5), generator=generator)
        names = torch.randint(6, (2, 5), generator=generator)
        seen.append(Similarities(shot, similarity, labels, names))
        for t in range(2):
            for q in range(5):
                scores = [0.7 * 3.0 * shot / (shot + 0.5) * s.item() for s in similarity[t, q]]
                loss = math.log(sum(map(math.exp, scores))) - scores[labels[t, q]]
                found.setdefault(int(names[t, q]), []).append(loss)
    expected = [np.mean(found[c]) for c in sorted(found)]
    assert scale_learner._class_nll(seen, scale, 0.7) == pytest.approx(expected, rel=1e-5)
