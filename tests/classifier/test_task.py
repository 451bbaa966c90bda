"""What the examples of a task change, and what they leave."""

import math
import re
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import classes

from varscale import FewShotClassifier
from varscale.classifier import Prior, correction
from varscale.classifier.prior import broad_prior
from varscale.classifier.task import fit_task
from varscale.functional import (
    Whitening,
    average_softmax,
    class_spread,
    leave_one_out,
    normalize,
    prototypes,
)


def plain_prior(generator, *, dim=6, **more):
    """A prior that examples do not change, with an origin, axes and a shot law."""
    mean, matrix = (
        torch.randn(*shape, dim, generator=generator).double() for shape in ((), (dim,))
    )
    return Prior(Whitening(mean, matrix), 11.0, shot_offset=0.7, **more)


def task_of(sizes, *, dim=6, queries=5, seed=0, noise=0.5):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    means = 1 + torch.randn(len(sizes), dim, generator=draw).double()
    items = means[labels] + noise * torch.randn(len(labels), dim, generator=draw).double()
    return items, labels, 1 + torch.randn(queries, dim, generator=draw).double()


def probabilities(prior, items, labels, query, n_way):
    task = fit_task(prior, items, labels, n_way)
    return task.probabilities(task.embed(query))


def cosines(prior, items, labels, query, n_way):
    """Cosines about the origin of the prior, in loops."""
    out = torch.empty(len(query), n_way).double()
    for k in range(n_way):
        mean = (items[labels == k].mean(0) - prior.whitening.mean) @ prior.whitening.matrix
        for j in range(len(query)):
            z = (query[j] - prior.whitening.mean) @ prior.whitening.matrix
            out[j, k] = z @ mean / (z.norm() * mean.norm())
    return out


def test_a_prior_that_does_not_adapt_gives_the_plain_law(generator):
    prior = plain_prior(generator, within=3.0, between=2.0, spread=0.3, n_classes=12)
    items, labels, query = task_of([4, 4, 4])
    expected = (11 * 4 / 4.7 * cosines(prior, items, labels, query, 3)).softmax(-1)
    torch.testing.assert_close(probabilities(prior, items, labels, query, 3), expected)
    adapted = probabilities(replace(prior, adapts=True), items, labels, query, 3)
    assert (adapted - expected).abs().max() > 0.01


def test_unequal_shots_temper_the_plain_law(generator):
    prior = plain_prior(generator)
    sizes = torch.tensor([1, 2, 6, 3]).double()
    items, labels, query = task_of([1, 2, 6, 3])
    cosine = cosines(prior, items, labels, query, 4)
    scores = sizes / (sizes + 0.7) * (cosine - cosine.mean(-1, keepdim=True))
    found = probabilities(prior, items, labels, query, 4)
    torch.testing.assert_close(found, (11 * scores).softmax(-1))


def test_a_query_that_resembles_its_class_less_changes_the_scale(generator):
    prior = plain_prior(generator, query_power=0.6, top=0.4)
    items, labels, query = task_of([4, 4, 4])
    cosine = cosines(prior, items, labels, query, 3)
    factor = (cosine.amax(-1, keepdim=True).clamp_min(0.2) / 0.4) ** -0.6
    # scores are about their mean over the classes, so that the factor spreads them
    scores = factor * (cosine - cosine.mean(-1, keepdim=True))
    found = probabilities(prior, items, labels, query, 3)
    torch.testing.assert_close(found, (11 * 4 / 4.7 * scores).softmax(-1))


@pytest.mark.parametrize("sizes", [[1, 1, 1], [1, 1, 1, 1, 1]])
def test_one_shot_of_each_class_corrects_nothing(sizes):
    prior = replace(broad_prior(6), within=3.0, between=2.0, n_classes=12)
    items, labels, _ = task_of(sizes)
    task = fit_task(prior, items, labels, len(sizes))
    assert task.factor.item() == 1
    assert task.alpha.item() == pytest.approx(prior.mean * task.place.spread.item())
    references = task.place.references
    expected = task.alpha / 1.5 * (references - references.mean(0))
    torch.testing.assert_close(task.weights, expected, rtol=1e-12, atol=0)


def test_two_shots_of_a_class_correct_something():
    items, labels, _ = task_of([1, 2, 2, 1], noise=2.0)
    task = fit_task(broad_prior(6), items, labels, 4)
    assert abs(task.factor.item() - 1) > 0.01
    size = task.correction.abs().amax(-1)
    assert size[1:3].min() > 0.01  # these are told apart by what was left out
    assert size[[0, 3]].max() < 1e-6
    assert task.intercept[[0, 3]].abs().max() < 1e-6 < task.intercept[1:3].abs().min()


def test_one_class_of_two_shots_has_no_rival():
    items, labels, _ = task_of([1, 2, 1], noise=2.0)
    task = fit_task(broad_prior(6), items, labels, 3)
    assert task.factor == 1
    assert not task.correction.any()


def test_the_correction_has_the_least_loss(monkeypatch):
    """The objective of M40, class by class, has no slope where the correction ends."""
    monkeypatch.setattr(correction, "REACHES", (0.3,))
    monkeypatch.setattr(correction, "ALLOWANCE", 1e6)  # so that this reach is all there is
    items, labels, _ = task_of([2, 4, 7, 5], noise=1.5)
    prior = replace(broad_prior(6), query_power=0.4, top=0.5)
    place = fit_task(prior, items, labels, 4).place
    alpha, z = torch.tensor(8.0).double(), place.unit(prior.embed(items))
    scores, factor = correction.left_out_scores(prior, place, prior.embed(items), labels)
    held = torch.zeros(2, len(items), dtype=torch.bool)
    held[0, ::2] = True  # the second fit holds nothing out
    weights, intercept = correction.correct_without(
        prior, place, prior.embed(items), labels, alpha, held
    )

    def loss(v, u):
        total = (v.square().sum() / 0.3**2 + u.square().sum() / correction.INTERCEPT_REACH**2) / (
            2 * alpha**2
        )
        for i, k in enumerate(labels.tolist()):
            added = [h @ z[i] + w for h, w in zip(v, u, strict=True)]
            given = [
                factor[i, 0] * (alpha * scores[i, j] + added[j]) + math.log((labels == j).sum())
                for j in range(4)
            ]
            total = total + torch.stack(given).logsumexp(0) - given[k]
        return total

    def slopes(v, u):
        point = [t.double().requires_grad_() for t in (v, u)]
        return torch.autograd.grad(loss(*point), point)

    found = slopes(weights[1], intercept[1])
    begin = slopes(torch.zeros(4, 6), torch.zeros(4))
    for here, there in zip(found, begin, strict=True):
        assert here.norm() < 0.01 * there.norm()
    assert intercept[1].abs().max() > 1e-3


def test_the_intercept_judges_a_wide_class_beside_a_narrow_one(monkeypatch):
    """Cosines do not see that the mean of a wide class is short."""
    generator = torch.Generator().manual_seed(0)
    labels, width = torch.arange(3).repeat(30), torch.tensor([0.2, 0.2, 2.0])
    noise = torch.randn(90, 40, generator=generator) * width[labels].unsqueeze(-1) / 4
    x = (torch.eye(3, 40)[labels] + noise).double()
    few, rest, own = x[:15], x[15:], labels[15:]

    def nll():
        task = fit_task(broad_prior(40), few, labels[:15], 3)
        p = task.probabilities(task.embed(rest))
        return task.intercept, -p.gather(-1, own.unsqueeze(-1)).log().mean()

    (intercept, loss), reach = nll(), correction.INTERCEPT_REACH
    monkeypatch.setattr(correction, "INTERCEPT_REACH", 1e-6)
    none, without = nll()
    assert none.abs().max() < 1e-6
    assert intercept[2] > intercept[:2].max()
    assert loss < without
    assert intercept.sum().abs() < 1e-4  # a softmax does not see what all have
    assert 0.01 < reach < 1


@pytest.mark.parametrize("sizes", [[1, 2, 6], [4, 1, 1, 9]])
def test_scores_of_unequal_classes_in_plain_steps(sizes):
    items, labels, query = task_of(sizes, noise=1.0)
    n, way = torch.tensor(sizes).double(), len(sizes)
    task = fit_task(broad_prior(6), items, labels, way)
    means = torch.stack([items[labels == k].mean(0) for k in range(way)])
    within = sum((items[labels == k] - means[k]).square().sum() for k in range(way)) / (n - 1).sum()
    between = (means - means.mean(0)).square().sum() / (way - 1) - within * (1 / n).mean()
    assert between > 0
    beta = within / between
    assert task.place.scatter.item() == pytest.approx(beta.item())
    z = task.embed(query)
    s = task.similarity(z)
    even = (0.5 - task.place.weight.item() / way * beta / n) / ((1 + beta) * (1 + beta / n)).sqrt()
    scores = task.alpha * n / (n + 0.5) * (s - s.mean(-1, keepdim=True) - even)
    expected = average_softmax(scores + z @ task.correction.mT + task.intercept, task.std)
    torch.testing.assert_close(task.probabilities(z), expected)
    torch.testing.assert_close(task.transduce(query[:1]), expected[:1])


def test_names_are_examples_for_the_variances_too(generator):
    items, labels, _ = task_of([2, 3, 1], noise=1.0)
    means = prototypes(items, labels, 3)
    names = means + torch.randn(3, 6, generator=generator).double()
    task = fit_task(broad_prior(6), items, labels, 3, names)
    moved = names - (names - means).mean(0)
    both = torch.cat([items, moved]), torch.cat([labels, torch.arange(3)])
    other = fit_task(broad_prior(6), *both, 3)
    torch.testing.assert_close(task.place.scatter, other.place.scatter)


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e6])
@pytest.mark.parametrize("sizes", [[1, 1, 1], [1, 4, 2]])
def test_variances_do_not_depend_on_where_the_examples_lie(sizes, offset):
    items, labels, _ = task_of(sizes, noise=1.0)
    here, there = (fit_task(broad_prior(6), x, labels, 3).place for x in (items, items + offset))
    torch.testing.assert_close(here.scatter, there.scatter, rtol=1e-6, atol=0)
    assert here.scatter.isfinite() == (max(sizes) > 1)


@pytest.mark.parametrize("learned", [False, True])
def test_classes_that_do_not_differ_are_as_likely_whatever_their_examples(generator, learned):
    prior = plain_prior(generator, adapts=True, between=1.0, within=1.0, dimensions=4.0)
    prior = prior if learned else broad_prior(6)
    labels = torch.arange(3).repeat_interleave(torch.tensor([1, 3, 7]))
    for same in torch.randn(20, 1, 6, generator=generator).double():
        task = fit_task(prior, same.expand(11, 6), labels, 3)
        p = task.probabilities(task.embed(same))
        assert p.flatten().tolist() == pytest.approx([1 / 3] * 3)


def test_where_noise_hides_the_classes_those_with_few_examples_keep_their_bias():
    items, labels, _ = task_of([1, 4], noise=20.0)
    place = fit_task(broad_prior(6), items, labels, 2).place
    assert place.scatter.item() == pytest.approx(10)


@pytest.mark.parametrize(("way", "away", "off"), [(8, 0.0, 0.1), (2, 3.0, 0.2)])
def test_a_class_with_few_examples_gets_its_share_of_the_answers(way, away, off):
    """By M24 alone its means are too noisy to be anyone's nearest."""
    draw = torch.Generator().manual_seed(0)
    dim, queries = 60, 40
    shots = torch.tensor([1, 10]).repeat(way // 2)
    labels = torch.arange(way).repeat_interleave(shots)
    answers, plain = [], []
    for _ in range(20):
        means = away + torch.randn(way, dim, generator=draw).double()
        items = means[labels] + 2 * torch.randn(len(labels), dim, generator=draw).double()
        truth = torch.arange(way).repeat_interleave(queries)
        query = means[truth] + 2 * torch.randn(len(truth), dim, generator=draw).double()
        task = fit_task(broad_prior(dim), items, labels, way)
        z = task.embed(query)
        answers.append(task.probabilities(z).argmax(-1))
        plain.append(replace(task, bias=0 * task.bias).probabilities(z).argmax(-1))
    few, without = ((shots[torch.cat(a)] == 1).double().mean() for a in (answers, plain))
    assert abs(few - 0.5) < off
    assert without < 0.5 - 1.5 * off
    truth = truth.repeat(20)
    right, before = ((torch.cat(a) == truth).double().mean() for a in (answers, plain))
    assert right > before + 0.05


def test_the_origin_and_the_means_of_a_task():
    items, labels, query = task_of([3, 2, 4])
    task = fit_task(broad_prior(6), items, labels, 3)
    means = prototypes(items, labels, 3)
    centre = means.mean(0)
    spread = (means - centre).square().sum() / 2
    weight = 1 - spread / (3 * centre.square().sum())
    assert 0 < weight < 1
    assert task.place.weight.item() == pytest.approx(weight.item())
    torch.testing.assert_close(task.place.origin[0], weight * centre)
    torch.testing.assert_close(task.embed(query), normalize(query - weight * centre))
    torch.testing.assert_close(task.place.references, normalize(means - weight * centre))


@pytest.mark.parametrize("power", [0.0, 0.7])
@pytest.mark.parametrize("sizes", [[3, 3, 3], [1, 2, 6], [20, 30, 10]])
def test_the_scale_is_the_likeliest_of_the_examples_left_out(sizes, power):
    prior = replace(broad_prior(6), query_power=power, top=0.3)
    items, labels, _ = task_of(sizes, noise=1.0)
    task = fit_task(prior, items, labels, len(sizes))
    place, n = task.place, torch.tensor(sizes).double()
    cosine = leave_one_out(items - place.origin, labels, place.means, n, place.weight)
    shots = n.repeat(len(labels), 1)
    shots[torch.arange(len(labels)), labels] = (n[labels] - 1).clamp_min(1)
    own = ((1 + place.scatter) * (1 + place.scatter / shots)) ** -0.5
    scores = shots / (shots + 0.5) * (cosine - cosine.mean(-1, keepdim=True) - own / 2)
    top = cosine[torch.arange(len(labels)), scores.argmax(-1)]
    scores = (top.clamp_min(0.15) / 0.3).unsqueeze(-1) ** -power * scores
    scores[:, n == 1] = -torch.inf  # nothing can be left out of these
    log_f = torch.linspace(-4, 4, 16001).double()
    log_p = (prior.mean * log_f.exp()[:, None, None] * scores).log_softmax(-1)
    own = log_p[:, torch.arange(len(labels)), labels][:, n[labels] > 1].sum(-1)
    best = log_f[(own - log_f.square() / 2).argmax()].exp()
    assert task.factor.item() == pytest.approx(best.item(), rel=1e-3)
    assert task.alpha.item() == pytest.approx(prior.mean * best.item(), rel=1e-3)


def test_examples_left_out_are_judged_as_queries_are():
    """The similarity that counts as typical is a matter of units, if the scale goes with it."""
    items, labels, query = task_of([4, 5, 3], noise=1.0)
    prior = replace(broad_prior(6), query_power=0.7, top=0.02)
    other = replace(prior, top=0.01, mean=prior.mean * 2**0.7)
    here, there = (fit_task(each, items, labels, 3) for each in (prior, other))
    assert here.correction.abs().max() > 0.1
    torch.testing.assert_close(here.factor, there.factor, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        here.probabilities(here.embed(query)),
        there.probabilities(there.embed(query)),
        rtol=1e-4,
        atol=1e-6,
    )


def test_a_scale_is_less_certain_far_from_the_base_classes():
    """At one shot; a second example tells more than the distance."""
    prior = Prior(Whitening(torch.ones(6)), 11.0, spread=0.1, n_classes=12, adapts=True)
    items, labels, query = task_of([1, 1, 1, 1])
    std = []
    for move, n_way in ((0.0, 4), (0.5, 3), (1.0, 4), (3.0, 4), (30.0, 4)):
        task = fit_task(prior, items[:n_way] + move, labels[:n_way], n_way)
        means = task.place.means + task.place.origin
        centre, spread = means.mean(-2), class_spread(means)
        squared = ((centre.square().sum() - spread / n_way) / spread).clamp(0, 1)
        assert task.std.item() == pytest.approx((0.01 + squared.item()) ** 0.5, rel=1e-6)
        std.append(task.std.item())
        p = task.probabilities(task.embed(query + move))
        torch.testing.assert_close(p.sum(-1), torch.ones(len(query)).double())
        certain = replace(task, std=torch.zeros(())).probabilities(task.embed(query + move))
        assert p.amax(-1).mean() < certain.amax(-1).mean()
        assert torch.equal(p.argmax(-1), certain.argmax(-1))
        alone = task.transduce(query[:1] + move)  # it has no others to learn from
        torch.testing.assert_close(alone, p[:1])
    assert std == sorted(std)
    assert std[-1] > 0.9 > 0.5 > std[0]
    twice = fit_task(prior, (items + 30).repeat(2, 1), labels.repeat(2), 4)
    assert twice.std < std[-1]
    unlearned = fit_task(replace(broad_prior(6), spread=0.4), items + 30, labels, 4)
    assert unlearned.std.item() == pytest.approx(0.4)
    assert fit_task(replace(prior, spread=0.0), items + 30, labels, 4).std == 0
    both = fit_task(prior, torch.stack([items, items + 30]), labels.expand(2, 4), 4)
    both = replace(both, std=torch.stack([torch.zeros(()).double(), both.std[1]]))
    p = both.probabilities(both.embed(torch.stack([query, query + 30])))
    torch.testing.assert_close(p[1], task.probabilities(task.embed(query + 30)))
    assert fit_task(replace(prior, adapts=False), items, labels, 4).std == 0


@pytest.mark.parametrize("sizes", [[2, 3, 1], [1, 1, 1], [6, 6, 6]])
@pytest.mark.parametrize("adapts", [False, True])
def test_many_tasks_at_once(sizes, adapts, generator):
    prior = plain_prior(generator, within=2.0, between=3.0, spread=0.3, query_power=0.3, top=0.5)
    prior = replace(prior, adapts=adapts)
    tasks = [task_of(sizes, seed=seed) for seed in range(4)]
    items, labels, query = (
        torch.stack(parts).unflatten(0, (2, 2)) for parts in zip(*tasks, strict=True)
    )
    found = probabilities(prior, items, labels, query, 3)
    for i, task in enumerate(tasks):
        expected = probabilities(prior, *task, 3)
        torch.testing.assert_close(found[i // 2, i % 2], expected, rtol=0, atol=1e-5)


def test_more_examples_than_the_evidence_may_have(monkeypatch):
    """Some of them tell nearly the same scale; without a probe nothing else changes."""
    from varscale.classifier import task as module

    items, labels, _ = task_of([80, 80, 80], noise=2.0)
    order = torch.randperm(240, generator=torch.Generator().manual_seed(0))
    items, labels = items[order], labels[order]
    monkeypatch.setattr("varscale.classifier.correction.LARGEST_PROBE", 1)
    whole = fit_task(broad_prior(6), items, labels, 3)
    monkeypatch.setattr(module, "LARGEST_EVIDENCE", 360)
    part = fit_task(broad_prior(6), items, labels, 3)
    assert part.factor.item() == pytest.approx(whole.factor.item(), rel=0.3)
    assert part.factor.item() != whole.factor.item()
    ours, theirs = (t.weights / t.alpha for t in (part, whole))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("parts", [2, 5])
def test_some_of_very_many_examples_are_of_every_class_in_whatever_order(monkeypatch, parts):
    items, labels, _ = task_of([40, 7, 90, 2], noise=2.0)
    multiplications = len(labels) * 6 * 4
    monkeypatch.setattr(correction, "LARGEST_PROBE", multiplications // parts)
    found = []
    for seed in (None, 0, 1):
        order = torch.arange(len(labels))
        if seed is not None:
            order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        x, y = items[order], labels[order]
        task = fit_task(broad_prior(6), x, y, 4)
        rows = correction.choose_examples(task.place, task.embed(x), y, parts)
        assert torch.bincount(y[rows]).tolist() == [-(-n // parts) for n in (40, 7, 90, 2)]
        found.append(task)
    for other in found[1:]:
        for name in ("weights", "bias"):
            torch.testing.assert_close(
                getattr(found[0], name), getattr(other, name), rtol=1e-4, atol=1e-4
            )
    assert found[0].correction.any()


@pytest.mark.usefixtures("as_user")
def test_two_parts_equal_the_whole_exactly(base):
    x, y = classes(seed=2, n_classes=7, per_class=9)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    whole = FewShotClassifier(prior=base.prior_).fit(x, y)
    for cut in (4, 20, len(y) - 1):
        parts = FewShotClassifier(prior=base.prior_).fit(x[:cut], y[:cut])
        parts.partial_fit(x[cut:], y[cut:])
        assert np.array_equal(parts.classes_, whole.classes_)
        assert np.array_equal(parts.counts_, whole.counts_)
        assert np.array_equal(parts.predict_proba(x), whole.predict_proba(x))
        assert np.array_equal(parts.known_score(x), whole.known_score(x))


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_answer_is_the_likeliest_class(base, dtype):
    x, y = classes(seed=2, n_classes=7, per_class=9)
    few = np.arange(len(y)) % 9 < 3
    clf = FewShotClassifier(prior=base.prior_).fit(x[few].astype(dtype), y[few])
    queries = x[~few].astype(dtype)
    p = clf.predict_proba(queries)
    assert p.dtype == dtype
    assert np.array_equal(clf.predict(queries), clf.classes_[p.argmax(1)])
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)


@pytest.mark.usefixtures("as_user")
def test_sets_of_classes_that_a_query_may_belong_to(base):
    x, y = classes(seed=2, n_classes=8, per_class=30)
    few = (np.arange(len(y)) % 30 < 1 + y) & (y < 6)  # 1 to 6 shots
    clf = FewShotClassifier(prior=base.prior_).fit(x[few], y[few])
    queries, truth = x[~few], y[~few]
    sets = {error: clf.predict_set(queries, error) for error in (0.05, 0.1, 0.2, 0.4)}
    for found in sets.values():
        assert found.shape == (len(queries), 6)
        assert found.dtype == bool
    assert np.array_equal(clf.predict_set(queries), sets[0.1])
    for low, high in ((0.05, 0.1), (0.1, 0.2), (0.2, 0.4)):
        assert not (sets[high] & ~sets[low]).any()
        assert sets[low].sum() > sets[high].sum()
    floor, least = clf.prior_.set_thresholds(torch.from_numpy(clf.counts_), 0.1)
    similar = clf.task_.similarity(clf.task_.embed(torch.from_numpy(queries))) >= floor
    likely = clf.predict_proba(queries) >= least.numpy()
    assert np.array_equal(sets[0.1], similar.numpy() & likely)
    assert (sets[0.1] != likely).any()
    assert (sets[0.1] != similar.numpy()).any()
    empty = ~sets[0.2].any(1)
    assert empty[truth >= 6].mean() > empty[truth < 6].mean() + 0.1
    with pytest.warns(UserWarning, match="Sets may miss more than 0.001: only"):
        clf.predict_set(queries, 0.001)
    own = sets[0.2][truth < 6][np.arange((truth < 6).sum()), truth[truth < 6]]
    assert own.mean() > 0.75
    with pytest.raises(ValueError, match="between 0 and 1"):
        clf.predict_set(queries, 0.0)
    with pytest.raises(ValueError, match="between 0 and 1, got '0.1'"):
        clf.predict_set(queries, "0.1")


def test_warnings_name_the_line_of_the_user(base, tmp_path):
    """In a process of its own: here the checks of shapes stand between."""
    x, y = classes(seed=2, n_classes=4, per_class=3)
    FewShotClassifier(prior=base.prior_).fit(x, y).save(tmp_path / "clf.st")
    code = ["from varscale import FewShotClassifier", "clf = FewShotClassifier.load('clf.st')"]
    calls = ["predict_set(X, 0.001)", "is_unknown(X, 0.001)", "predict(X, reject=0.001)"]
    code += ["X = clf.examples_", *(f"clf.{call}" for call in calls)]
    (tmp_path / "mine.py").write_text("\n".join(code))
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = re.findall(r"mine\.py:(\d+): UserWarning", done.stderr)
    assert lines == ["4", "5", "6"]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("shot", [1, 2])
def test_one_shot_classes_far_from_the_base_ones_warn(shot):
    base = FewShotClassifier().fit(*classes(n_classes=60, per_class=8, dim=64)).prior_
    x, y = classes(seed=1, n_classes=20, per_class=shot, dim=64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FewShotClassifier(prior=base).fit(x, y)  # like the base classes
    apart = x + 3 * (x - x.mean(0))
    for other, said in ((x + 2, "they lie elsewhere"), (apart, "further apart")):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            FewShotClassifier(prior=base).fit(other, y)
            FewShotClassifier(prior=10.0).fit(other, y)  # nothing is known of base classes
        assert [said in str(w.message) for w in found] == [True] * (shot == 1)


@pytest.mark.usefixtures("as_user")
def test_a_loaded_classifier_does_not_warn_again(tmp_path):
    base = FewShotClassifier().fit(*classes(n_classes=60, per_class=8, dim=64)).prior_
    x, y = classes(seed=1, n_classes=20, per_class=1, dim=64)
    clf = FewShotClassifier(prior=base)
    with pytest.warns(UserWarning, match="unlike the base classes"):
        clf.fit(x + 2, y)
    clf.save(tmp_path / "m")
    assert np.array_equal(FewShotClassifier.load(tmp_path / "m").predict(x), clf.predict(x))


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("shot", [1, 3])
def test_one_class_is_certain(base, shot):
    x, y = classes(seed=2, n_classes=2, per_class=5)
    for prior in (base.prior_, 10.0):
        clf = FewShotClassifier(prior=prior).fit(x[:shot], y[:shot])  # and says nothing
        assert clf.predict_proba(x).tolist() == [[1.0]] * 10
        clf.partial_fit(x[5 : 5 + shot + 1], y[5 : 5 + shot + 1])
        assert clf.predict(x[[0, 5]]).tolist() == [0, 1]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("n_classes", [2, 3, 12])
@pytest.mark.parametrize("kind", ["identical", "identical in a class", "zero", "some zero"])
@pytest.mark.parametrize("prior", ["learned", "broad", 10.0])
def test_odd_examples_give_probabilities(base, n_classes, kind, prior):
    x, y = classes(seed=2, n_classes=n_classes, per_class=4)
    odd = {
        "identical": x[:1] + 0 * x,
        "identical in a class": x[4 * y],
        "zero": 0 * x,
        "some zero": x * (np.arange(len(y)) % 4 > 0)[:, None],
    }[kind]
    given = {"learned": base.prior_, "broad": broad_prior(16)}.get(prior, prior)
    clf = FewShotClassifier(prior=given).fit(odd, y)
    p = clf.predict_proba(np.concatenate([x, odd, 0 * x[:1]]))
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1)
    if kind in ("identical", "zero"):
        np.testing.assert_allclose(p[len(x) :], 1 / n_classes, atol=1e-6)
    if kind == "identical in a class":
        assert (clf.predict(odd) == y).all()


def test_the_order_of_examples_does_not_matter(base):
    x, y = classes(n_classes=4, per_class=12, seed=5)
    few = np.arange(len(y)) % 12 < 7
    order = np.random.default_rng(0).permutation(few.sum())
    fitted = [
        FewShotClassifier(prior=base.prior_).fit(x[few][rows], y[few][rows])
        for rows in (slice(None), order)
    ]
    assert fitted[0].task_.correction.any()
    one, other = (clf.predict_proba(x[~few]) for clf in fitted)
    np.testing.assert_allclose(one, other, rtol=1e-5)
