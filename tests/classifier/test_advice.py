"""What a classifier says about its own examples, against refitting and against what was planted."""

import numpy as np
import pytest
import torch
from conftest import classes

from varscale import FewShotClassifier
from varscale.classifier import correction
from varscale.classifier.correction import (
    FOLDS,
    correct_without,
    deal_examples,
    score_left_out,
)
from varscale.classifier.task import fit_task
from varscale.functional import choose_covering, extrapolate_error, leave_one_out, query_factor
from varscale.report.findings import describe_examples

SEED = 3


@pytest.fixture
def few(base):
    """Six new classes of five examples, and further items of them."""
    x, y = classes(seed=SEED, n_classes=6)
    chosen = np.arange(len(y)) % 20 < 5
    return FewShotClassifier(prior=base.prior_).fit(x[chosen], y[chosen]), x[~chosen], y[~chosen]


def refit(clf, i):
    keep = np.arange(len(clf.labels_)) != i
    labels = clf.classes_[clf.labels_]
    return FewShotClassifier(prior=clf.prior_).fit(clf.examples_[keep], labels[keep])


def test_leaving_out_is_near_to_fitting_without(few):
    clf, _, _ = few
    found = clf.leave_one_out()
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-9)
    exact = np.stack(
        [refit(clf, i).predict_proba(clf.examples_[i : i + 1])[0] for i in range(len(found))]
    )
    seen = clf.predict_proba(clf.examples_)
    near, far = np.abs(found - exact).mean(), np.abs(seen - exact).mean()
    assert near < 0.02
    assert near < far / 2


def test_leaving_out_is_fair_to_classes_with_few_examples():
    """Their own label is as likely as to a classifier that never saw them."""
    draw, sizes = np.random.default_rng(0), [3, 3, 10, 10]
    y, found, exact = np.repeat(np.arange(4), sizes), [], []
    for _ in range(5):
        means = 3 + draw.normal(size=(4, 60))
        clf = FewShotClassifier().fit(means[y] + 2 * draw.normal(size=(len(y), 60)), y)
        few = np.flatnonzero(y < 2)
        found += list(clf.leave_one_out()[few, y[few]])
        exact += [refit(clf, i).predict_proba(clf.examples_[i : i + 1])[0, y[i]] for i in few]
    assert abs(np.mean(found) - np.mean(exact)) < 0.05
    assert np.abs(np.subtract(found, exact)).mean() < 0.06


def test_leaving_out_at_a_fixed_scale_is_exact():
    x, y = classes(seed=SEED, n_classes=4, per_class=3)
    clf = FewShotClassifier(prior=9.0).fit(x, y)
    exact = [refit(clf, i).predict_proba(x[i : i + 1])[0] for i in range(len(y))]
    np.testing.assert_allclose(clf.leave_one_out(), exact, atol=1e-9)


def test_each_example_gets_the_correction_without_its_part(base, monkeypatch):
    # all parts together tell how much each reach weighs; here there is one, and no other choice
    monkeypatch.setattr(correction, "REACHES", (0.3,))
    monkeypatch.setattr(correction, "ALLOWANCE", 1e6)
    x, y = classes(seed=SEED, n_classes=3, per_class=5, noise=1.3)
    clf = FewShotClassifier(prior=base.prior_).fit(x, y)
    task, labels = clf.task_, torch.from_numpy(clf.labels_)
    assert task.correction.any()
    z = clf.prior_.embed(_tensor(x))
    given = task.place.means, task.place.count, task.place.weight
    cosine = leave_one_out(z - task.place.origin, labels, *given)
    scores = score_left_out(clf.prior_, task.place, cosine, labels, task.place.share)
    scores = task.alpha * scores
    part = deal_examples(task.place, z, labels, FOLDS)
    for i in range(len(y)):
        held = (part == part[i]).unsqueeze(0)
        (added,), (lift,) = correct_without(clf.prior_, task.place, z, labels, task.alpha, held)
        without = scores[i] + task.place.unit(z[i : i + 1])[0] @ added.double().mT + lift
        moved = (_factor(clf, cosine[i], without) * without).softmax(-1).numpy()
        np.testing.assert_allclose(clf.leave_one_out()[i], moved, atol=1e-4)


def _factor(clf, cosine, scores):
    prior = clf.prior_
    return query_factor(cosine[scores.argmax()], prior.query_power, prior.top)


def test_more_examples_than_dimensions_and_many_parts(base, monkeypatch):
    x, y = classes(seed=SEED, n_classes=3, per_class=30)
    clf = FewShotClassifier(prior=base.prior_).fit(x, y)
    assert len(x) > x.shape[1]
    assert clf.task_.correction.any()
    whole = clf.leave_one_out()
    monkeypatch.setattr("varscale.classifier.left_out.CHUNK", 10)
    np.testing.assert_allclose(clf.leave_one_out(), whole, atol=1e-9)
    right = (whole.argmax(1) == y).mean()
    assert abs(right - whole.max(1).mean()) < 0.12
    monkeypatch.setattr("varscale.classifier.correction.LARGEST_PROBE", 1000)  # some examples serve
    some = FewShotClassifier(prior=base.prior_).fit(x, y)
    assert np.abs(some.leave_one_out() - whole).max() < 0.5


def test_wrong_labels_are_found(base):
    x, y = classes(seed=SEED, n_classes=8, noise=0.6)
    x, y = x[np.arange(len(y)) % 20 < 5], np.repeat(np.arange(8), 5)
    wrong = y.copy()
    wrong[[2, 17, 33]] = [5, 0, 1]
    clf = FewShotClassifier(prior=base.prior_).fit(x, wrong)
    quality = clf.label_quality()
    assert set(quality.argsort()[:3].tolist()) == {2, 17, 33}
    assert ((quality >= 0) & (quality <= 1)).all()
    assert clf.better_labels()[[2, 17, 33]].tolist() == y[[2, 17, 33]].tolist()
    clean = FewShotClassifier(prior=base.prior_).fit(x, y)
    assert clf.remove([2, 17, 33]).score(x, y) >= 0.95 * clean.score(x, y)


def test_confused_classes_come_first(base):
    draw = np.random.default_rng(0)
    centres = 4 * draw.normal(size=(5, 16))
    centres[4] = centres[1] + 0.2
    x = np.repeat(centres, 6, axis=0) + draw.normal(size=(30, 16))
    names = np.repeat(["a", "b", "c", "d", "e"], 6)
    clf = FewShotClassifier(prior=base.prior_).fit(x, names)
    (first, *_) = found = clf.confusions(3)
    assert first[:2] == ("b", "e")
    assert len(found) == 3
    rates = [rate for *_, rate in found]
    assert rates == sorted(rates, reverse=True)
    p = clf.leave_one_out()
    pair = np.isin(names, ["b", "e"])
    mass = np.where(names == "b", p[:, 4], p[:, 1])[pair].mean()
    assert first[2] == pytest.approx(mass, rel=1e-6)


@pytest.mark.filterwarnings("ignore:These classes are unlike")
def test_what_to_label_next_beats_chance(base):
    gains = []
    for seed in range(6):
        x, y = classes(seed=10 + seed, n_classes=12, per_class=40, noise=0.7)
        order = np.random.default_rng(seed).permutation(len(y))
        first = np.array([np.flatnonzero(y[order] == k)[0] for k in range(12)])
        pool = np.setdiff1d(np.arange(len(y)), first)
        test, pool = pool[::2], pool[1::2]
        x, y = x[order], y[order]

        def clf(more, first=first, x=x, y=y):
            rows = np.concatenate([first, more]).astype(int)
            return FewShotClassifier(prior=base.prior_).fit(x[rows], y[rows])

        told = clf(pool[clf([]).next_to_label(x[pool], 12)]).score(x[test], y[test])
        gains.append(told - clf(pool[:12]).score(x[test], y[test]))
    assert np.mean(gains) > 0.01


def test_chosen_rows_are_distinct_and_few_enough(few, monkeypatch):
    clf, x, _ = few
    chosen = clf.next_to_label(x, 7)
    assert len(set(chosen.tolist())) == 7
    assert sorted(clf.next_to_label(x[:4], 10)) == [0, 1, 2, 3]
    assert clf.next_to_label(x, 1)[0] == chosen[0]
    monkeypatch.setattr("varscale.classifier.advice.POOL", 30)
    thin = clf.next_to_label(x, 5)
    assert (thin % 3 == 0).all()  # every third of 90
    monkeypatch.setattr("varscale.classifier.advice.CHUNK", 50)
    assert clf.next_to_label(x, 5).tolist() == thin.tolist()


def test_as_many_rows_are_chosen_as_asked(few, monkeypatch):
    clf, x, _ = few
    whole = clf.next_to_label(x, len(x))
    assert sorted(whole) == list(range(90))
    sizes = []

    def choose(similarity, *given):
        sizes.append(len(similarity))
        return choose_covering(similarity, *given)

    monkeypatch.setattr("varscale.classifier.advice.choose_covering", choose)
    monkeypatch.setattr("varscale.classifier.advice.POOL", 40)
    for n in (30, 40, 75, 90, 200):
        chosen = clf.next_to_label(x, n)
        assert len(chosen) == len(set(chosen.tolist())) == min(n, 90)
    assert max(sizes) <= 40  # memory
    places = np.argsort(whole)[chosen]  # the first of all are early among some at a time
    assert places[:30].mean() < places[-30:].mean() - 20


def test_expected_accuracy_covers_the_truth(base):
    inside, errors = [], []
    for seed in range(12):
        x, y = classes(seed=50 + seed, n_classes=8, per_class=100, noise=0.8)
        place = np.arange(len(y)) % 100
        clf = FewShotClassifier(prior=base.prior_)
        told = clf.fit(x[place < 3], y[place < 3]).expected_accuracy(7)
        true = clf.fit(x[place < 10], y[place < 10]).score(x[place >= 10], y[place >= 10])
        inside.append(told.low <= true <= told.high)
        errors.append(told.mean - true)
    assert np.mean(inside) > 0.7
    assert abs(np.mean(errors)) < 0.06


def test_expected_accuracy_rises_with_examples(few):
    clf, _, _ = few
    told = [clf.expected_accuracy(more) for more in (0, 1, 5, 50)]
    assert [t.mean for t in told] == sorted(t.mean for t in told)
    assert all(0 < t.low < t.mean < t.high <= 1 for t in told)
    with pytest.raises(ValueError, match="Expected more >= 0"):
        clf.expected_accuracy(-1)


def test_several_accuracies_are_measured_once(few, monkeypatch):
    clf, _, _ = few
    apart, fits = [clf.expected_accuracy(more) for more in (0, 1, 5)], []

    def fit(*given):
        fits.append(given)
        return fit_task(*given)

    monkeypatch.setattr("varscale.classifier.advice.fit_task", fit)
    assert clf.expected_accuracies((0, 1, 5)) == apart
    assert len(fits) == 6  # two sizes, three times each
    fits.clear()
    facts = describe_examples(clf, more=10)
    assert [told["more"] for told in facts["expected"]] == [0, 1, 2, 3, 5, 10]
    assert len(fits) == 6
    with pytest.raises(ValueError, match="Expected more >= 0"):
        clf.expected_accuracies([1, -1])


def test_a_name_alone_counts_as_one_example(base, monkeypatch):
    x, y = classes(seed=SEED, n_classes=4, per_class=5)
    known = y > 0
    clf = FewShotClassifier(prior=base.prior_)
    clf.fit(x[known], y[known], names={k: x[5 * k] + 0.1 for k in range(4)})
    assert (clf.counts_.tolist(), clf.task_.place.count.tolist()) == ([0, 5, 5, 5], [1, 6, 6, 6])
    targets = []

    def extrapolate(error, shots, answers, target, *, width):
        targets.append(target.tolist())
        return extrapolate_error(error, shots, answers, target, width=width)

    monkeypatch.setattr("varscale.classifier.advice.extrapolate_error", extrapolate)
    clf.expected_accuracy(2)
    assert targets == [[3, 8, 8, 8]]


def test_the_examples_that_speak_for_an_answer(few):
    clf, x, _ = few
    places, cosines = clf.nearest(x[:20], 7)
    answer = clf.predict_proba(x[:20]).argmax(1)
    z = clf.task_.embed(_tensor(x[:20])).numpy()
    e = clf.task_.embed(_tensor(clf.examples_)).numpy()
    for row, (place, cosine) in enumerate(zip(places, cosines, strict=True)):
        own = np.flatnonzero(clf.labels_ == answer[row])
        order = own[np.argsort(-(e[own] @ z[row]))]
        assert place.tolist() == [*order.tolist(), -1, -1]
        np.testing.assert_allclose(cosine[:5], e[order] @ z[row], atol=1e-9)
        assert cosine[5:].tolist() == [0, 0]
    # an example is nearest to itself, if its class is the answer
    places, cosines = clf.nearest(clf.examples_, 1)
    own = clf.predict_proba(clf.examples_).argmax(1) == clf.labels_
    assert (places[own, 0] == np.flatnonzero(own)).all()


def _tensor(x):
    return torch.from_numpy(np.asarray(x, dtype=np.float64))


def test_removing_equals_fitting_without(few):
    clf, x, _ = few
    keep = np.delete(np.arange(len(clf.labels_)), [0, 7])
    expected = FewShotClassifier(prior=clf.prior_).fit(clf.examples_[keep], clf.labels_[keep])
    np.testing.assert_array_equal(clf.remove([7, 0]).predict_proba(x), expected.predict_proba(x))
    assert clf.counts_.tolist() == [4, 4, 5, 5, 5, 5]
    clf.remove(0).remove([0, 1, 2])
    assert clf.classes_.tolist() == [1, 2, 3, 4, 5]
    for wrong, message in (
        (24, "from 0 to 23"),
        (-1, "from 0 to 23"),
        (0.5, "whole numbers"),
        ([], "whole numbers"),
        (range(24), "at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            clf.remove(wrong)
    assert len(clf.examples_) == 24


def test_a_named_class_outlives_its_examples(base):
    x, y = classes(seed=SEED, n_classes=3, per_class=2)
    names = {0: x[0] + 0.1, 1: x[2] + 0.1}
    clf = FewShotClassifier(prior=base.prior_).fit(x, y, names=names)
    clf.remove([0, 1])
    assert (clf.classes_.tolist(), clf.counts_.tolist()) == ([0, 1, 2], [0, 2, 2])
    clf.remove([2])
    assert clf.counts_.tolist() == [0, 2, 1]
    assert np.isfinite(clf.leave_one_out()).all()
    assert np.isfinite(clf.expected_accuracy(3)).all()
    places, _ = clf.nearest(names[0][None], 2)
    assert places.shape == (1, 2)


@pytest.mark.filterwarnings("ignore:These classes are unlike")
def test_one_example_of_each_class_leaves_nothing_out(base):
    x, y = classes(seed=SEED, n_classes=4, per_class=1)
    clf = FewShotClassifier(prior=base.prior_).fit(x, y)
    for ask in (clf.leave_one_out, clf.label_quality, clf.confusions, clf.expected_accuracy):
        with pytest.raises(ValueError, match=r"every class has one alone\. Add examples"):
            ask()
    assert len(clf.next_to_label(x + 0.3, 2)) == 2
    # with one more, the others cannot be contradicted
    clf.partial_fit(x[:1] + 0.1, y[:1])
    assert (clf.label_quality()[1:4] == 1).all()


KINDS = ("plain", "zero", "same", "huge")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [1, 2, 3])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_odd_data_give_numbers(kind, n_classes):
    x, y = classes(seed=SEED, n_classes=n_classes, per_class=3)
    x = {"plain": x, "zero": 0 * x, "same": np.repeat(x[:1], len(x), 0), "huge": 1e200 * x}[kind]
    clf = FewShotClassifier(prior=9.0 if n_classes == 1 else None).fit(x, y)
    assert np.isfinite(clf.leave_one_out()).all()
    assert np.isfinite(clf.label_quality()).all()
    assert np.isfinite([rate for *_, rate in clf.confusions()]).all()
    assert np.isfinite(clf.expected_accuracy(4)).all()
    assert np.isfinite(clf.nearest(x, 2)[1]).all()
    assert len(set(clf.next_to_label(x, 3).tolist())) == 3
    for ask in (clf.next_to_label, clf.nearest):
        with pytest.raises(ValueError, match="NaN"):
            ask(np.full((2, x.shape[1]), np.nan))
        with pytest.raises(ValueError, match="whole number from 1"):
            ask(x, 0)


def test_many_classes_at_once():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(700, 8)).repeat(2, 0) + 0.3 * draw.normal(size=(1400, 8))
    clf = FewShotClassifier(prior=9.0).fit(x.astype(np.float32), np.arange(1400) // 2)
    judged = clf.judge_examples()
    assert judged.judged.all()
    assert len(clf.next_to_label(x[:200], 5)) == 5
    assert 0 < clf.expected_accuracy(2).mean < 1
