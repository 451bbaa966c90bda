"""The scikit-learn estimator: its contract, its promises, and what people give to it."""

import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import classes
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import varscale
from varscale import FewShotClassifier
from varscale.classifier.task import Task

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested

CHECKS = """
from sklearn.utils.estimator_checks import check_estimator
from varscale import FewShotClassifier
results = check_estimator(FewShotClassifier(), on_skip=None, on_fail="raise")
assert {r["status"] for r in results} == {"passed"}, results
print(len(results))
"""


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([FewShotClassifier(), FewShotClassifier(prior=10.0)])
def test_a_check_of_scikit_learn(estimator, check):
    check(estimator)


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


def test_partial_fit_equals_fit_and_relearns_nothing(base):
    x, y = classes(seed=2, n_classes=9)
    whole = FewShotClassifier(prior=base.prior_).fit(x, y)
    parts = FewShotClassifier(prior=base.prior_).fit(x[y < 4], y[y < 4])
    order = np.flatnonzero(y >= 4).reshape(5, 20).T.ravel()  # classes mixed, each in its order
    for part in np.array_split(order, 7):
        parts.partial_fit(x[part], y[part])
    parts.partial_fit(x[:5], y[:5])
    twice = FewShotClassifier(prior=base.prior_).fit(np.r_[x, x[:5]], np.r_[y, y[:5]])
    assert parts.prior_ is base.prior_
    assert parts.counts_.tolist() == twice.counts_.tolist()
    np.testing.assert_allclose(parts.predict_proba(x), twice.predict_proba(x), atol=1e-4)
    assert not np.allclose(parts.predict_proba(x), whole.predict_proba(x), atol=1e-3)


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


def test_arrays_of_any_layout(base):
    x, y = classes(seed=2, n_classes=4)
    turned = np.ascontiguousarray(x[::-1])
    expected = FewShotClassifier(prior=base.prior_).fit(turned, y[::-1]).predict_proba(turned)
    frozen = x.copy()
    frozen.flags.writeable = False
    for other in (x[::-1], np.asfortranarray(x)[::-1], frozen[::-1]):
        clf = FewShotClassifier(prior=base.prior_).fit(other, y[::-1])
        np.testing.assert_allclose(clf.predict_proba(other), expected, atol=1e-10)


@pytest.mark.usefixtures("as_user")
def test_seeds_and_numbers_of_numpy(tmp_path):
    x, y = classes(n_classes=12)
    zero, one = (FewShotClassifier(random_state=seed).fit(x, y).prior_.mean for seed in (0, 1))
    assert zero != one
    assert FewShotClassifier().fit(x, y).prior_.mean == zero
    clf = FewShotClassifier(prior=np.float32(7.5), random_state=np.random.RandomState(3)).fit(x, y)
    clf.save(tmp_path / "m")
    assert FewShotClassifier.load(tmp_path / "m").prior_.mean == 7.5
    drawn, again = (
        FewShotClassifier(random_state=np.random.RandomState(3)).fit(x, y) for _ in range(2)
    )
    assert drawn.prior_.mean == again.prior_.mean


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
    original = Task.probabilities
    monkeypatch.setattr(
        Task, "probabilities", lambda self, z: seen.append(len(z)) or original(self, z)
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
    search = GridSearchCV(FewShotClassifier(), {"prior": [None, 5.0, 20.0]}, cv=2)
    assert search.fit(x, y).best_score_ > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": -1.0}, "scale > 0"),
        ({"prior": 0}, "scale > 0"),
        ({"prior": float("nan")}, "scale > 0"),
        ({"prior": np.inf}, "scale > 0"),
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
    for texts in (["a text", "another"], np.array(["a text"])):
        with pytest.raises(ValueError, match="got texts. Embed them first"):
            FewShotClassifier().fit(texts, [0, 1])
        with pytest.raises(ValueError, match="got texts. Embed them first"):
            base.predict(texts)
    with pytest.raises(ValueError, match="NaN"):
        FewShotClassifier().fit(np.where(x > 3, np.nan, x), y)
    with pytest.raises(ValueError, match=r"no number above 1e\+300"):
        FewShotClassifier().fit(1e305 * x.astype(np.float64), y)
    clf = FewShotClassifier(prior=base.prior_).fit(x, y)
    with pytest.raises(ValueError, match="Expected classes like 0, got 'three'"):
        clf.partial_fit(x[:1], ["three"])
    with pytest.raises(ValueError, match="Expected classes like 'a', got 1"):
        FewShotClassifier(prior=10.0).fit(x, np.array(["a", "b", "c"])[y]).partial_fit(x[:1], [1])
    with pytest.raises(ValueError, match="between 0 and 1"):
        clf.predict(x, reject=5)
    for wrong in (clf, "base.safetensors"):
        with pytest.raises(ValueError, match="a number or a classifier's prior_"):
            FewShotClassifier(prior=wrong).fit(x, y)
    named = FewShotClassifier(prior=base.prior_).fit(x, np.array(["a", "b", "unknown"])[y])
    with pytest.raises(ValueError, match="no class called 'unknown'"):
        named.predict(x, reject=0.1)
    with pytest.raises(ValueError, match="at least 10 classes"):
        FewShotClassifier(prior=10.0).fit(x, y).predict(x, reject=0.1)
