"""Ten thousand tasks at once say the same as one after another, and as plain loops."""

import math

import numpy as np
import pytest
import torch

import varscale
from varscale.core.processes import ALONE, Processes
from varscale.data import Dataset, EpisodeSampler
from varscale.evaluation import evaluate
from varscale.evaluation.metrics import (
    brier_score,
    calibration_bins,
    expected_calibration_error,
    interval,
    t_interval,
)
from varscale.hosts import HOSTS, PrototypicalNetwork

OPTIONS = {"svs": {"init": 10.0}, "d-svs": {"init": 10.0}, "d-avs": {"hidden": 5}}


@pytest.fixture(params=["svs", "d-svs", "d-avs", "matching", "tadam"])
def model(request):
    """In double precision: batches of other sizes round in other places."""
    torch.manual_seed(0)
    if request.param == "tadam":
        small = varscale.backbones.ResNet12(in_channels=1, image_size=8, width=1 / 16)
        tadam = varscale.create("tadam", backbone=small, scaler="svs", metric="cosine")
        for network in (*tadam.host.gammas, *tadam.host.betas):
            torch.nn.init.constant_(network.post_multiplier, 0.5)
        return tadam.double()
    scaler = "svs" if request.param == "matching" else request.param
    return varscale.create(
        "matching" if request.param == "matching" else "pn",
        backbone="tiny",
        scaler=scaler,
        scaler_options=OPTIONS[scaler],
        metric="cosine",
    ).double()


def sampler_of(split, **options):
    return EpisodeSampler(split.labels, **{"n_way": 3, "n_query": 4, "stream": "test", **options})


@pytest.mark.parametrize(
    "task", [{}, {"n_shot": [1, 3, 2]}, {"n_query": 7, "queries": "random"}, {"n_way": 4}]
)
def test_all_at_once_equals_one_by_one(tiny_images, model, task):
    split = Dataset.open(tiny_images)["test"]
    sampler = sampler_of(split, **task)
    fast = evaluate(model, split, sampler, episodes=40)
    slow = evaluate(model, split, sampler, episodes=40, one_by_one=True)
    for name in ("accuracy", "nll", "brier", "bins", "hits", "queries", "confusion"):
        torch.testing.assert_close(getattr(fast, name), getattr(slow, name), atol=1e-10, rtol=1e-10)
    assert model.training


def test_draws_of_the_scale_do_not_depend_on_the_pieces(tiny_images, model, monkeypatch):
    split = Dataset.open(tiny_images)["test"]
    whole = evaluate(model, split, sampler_of(split), episodes=30, samples=3)
    monkeypatch.setattr(varscale.evaluation.evaluation, "CHUNK", 1000)
    pieces = evaluate(model, split, sampler_of(split), episodes=30, samples=3)
    torch.testing.assert_close(whole.nll, pieces.nll, atol=1e-10, rtol=1e-10)


def test_figures_against_plain_loops(tiny_images):
    torch.manual_seed(0)
    model = varscale.create(
        backbone="tiny", scaler="svs", scaler_options={"init": 30.0}, metric="cosine"
    )
    model.double().eval()
    split = Dataset.open(tiny_images)["test"]
    sampler = sampler_of(split)
    scores = evaluate(model, split, sampler, episodes=25)
    accuracies, losses, briers, sure = [], [], [], []
    confusion = np.zeros((4, 4), dtype=int)
    classes = sorted(set(split.labels.tolist()))
    for i in range(25):
        rows = sampler[i]
        with torch.no_grad():
            p = model(split.episode(rows)).exp()[0]
        hits, loss, brier = [], [], []
        for j, y in enumerate(rows.query_labels[0].tolist()):
            guess = int(p[j].argmax())
            hits.append(guess == y)
            loss.append(-math.log(p[j, y]))
            brier.append(sum((float(p[j, k]) - (k == y)) ** 2 for k in range(3)))
            sure.append((float(p[j].max()), guess == y))
            names = [classes.index(c) for c in rows.classes[0].tolist()]
            confusion[names[y], names[guess]] += 1
        accuracies.append(np.mean(hits))
        losses.append(np.mean(loss))
        briers.append(np.mean(brier))
    report = scores.summary()
    assert report["accuracy"] == pytest.approx(np.mean(accuracies), abs=1e-12)
    assert report["ci95"] == pytest.approx(1.96 * np.std(accuracies, ddof=1) / 5, abs=1e-12)
    assert report["nll"] == pytest.approx(np.mean(losses), abs=1e-10)
    assert report["brier"] == pytest.approx(np.mean(briers), abs=1e-10)
    assert report["ece"] == pytest.approx(ece_by_loops(sure), abs=1e-10)
    assert scores.confusion.tolist() == confusion.tolist()
    assert scores.queries.tolist() == confusion.sum(1).tolist()
    assert scores.hits.tolist() == confusion.diagonal().tolist()
    first = split.dataset.class_names[classes[0]]
    assert report["per_class"][first] == confusion[0, 0] / confusion[0].sum()


def ece_by_loops(sure):
    total = 0.0
    for b in range(15):
        low, high = b / 15, (b + 1) / 15
        inside = [(c, h) for c, h in sure if low <= c < high or (b == 14 and c == 1.0)]
        if inside:
            gap = np.mean([c for c, _ in inside]) - np.mean([h for _, h in inside])
            total += abs(gap) * len(inside) / len(sure)
    return total


def test_a_confidence_of_one_is_in_the_last_bin():
    bins = calibration_bins(torch.tensor([1.0, 0.0, 0.99]), torch.tensor([True, False, False]))
    assert bins[0].tolist() == [1.0] + [0.0] * 13 + [2.0]
    assert bins[2, -1] == 1.0
    perfect = calibration_bins(torch.ones(5), torch.ones(5, dtype=torch.bool))
    assert expected_calibration_error(perfect) == 0.0


def test_brier_score_at_its_ends():
    sure = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]], dtype=torch.float64)
    assert brier_score(sure, torch.tensor([0, 0])).tolist() == [0.0, 2.0]


def test_intervals():
    mean, half = interval([1.0, 2.0, 4.0])
    assert (mean, half) == pytest.approx((7 / 3, 1.96 * math.sqrt(7 / 3) / math.sqrt(3)))
    five = [0.3, 0.5, 0.4, 0.2, 0.6]
    assert t_interval(five)[1] / interval(five)[1] == pytest.approx(2.776 / 1.96, rel=1e-3)
    assert math.isnan(interval([3.0])[1])
    covered = 0
    generator = torch.Generator().manual_seed(0)
    for _ in range(2000):
        mean, half = t_interval(torch.randn(5, generator=generator))
        covered += abs(mean) <= half
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_host_that_looks_at_the_task_goes_the_general_way(tiny_images, monkeypatch):
    class Conditioned(PrototypicalNetwork):
        """Embeddings relative to the mean of the supports."""

        conditioned = True

        def embed(self, episode):
            support, query = super().embed(episode)
            mean = support.mean(1, keepdim=True)
            return support - mean, query - mean

    monkeypatch.setitem(HOSTS._members, "conditioned", Conditioned)
    torch.manual_seed(0)
    model = varscale.create("conditioned", backbone="tiny", metric="euclidean").double()
    split = Dataset.open(tiny_images)["test"]
    fast = evaluate(model, split, sampler_of(split), episodes=30)
    slow = evaluate(model, split, sampler_of(split), episodes=30, one_by_one=True)
    torch.testing.assert_close(fast.nll, slow.nll, atol=1e-10, rtol=1e-10)
    # moving all of a task by one vector changes no Euclidean distance
    torch.manual_seed(0)
    plain = varscale.create("pn", backbone="tiny", metric="euclidean").double()
    usual = evaluate(plain, split, sampler_of(split), episodes=30)
    torch.testing.assert_close(fast.accuracy, usual.accuracy)


def test_many_classes_have_no_confusion_matrix(tiny_images, monkeypatch):
    monkeypatch.setattr(varscale.evaluation.evaluation, "MOST_CLASSES", 3)
    split = Dataset.open(tiny_images)["test"]
    model = varscale.create(backbone="tiny", metric="cosine")
    scores = evaluate(model, split, sampler_of(split), episodes=10)
    assert scores.confusion is None
    assert scores.queries.sum() == 10 * 12


def test_shares_of_processes_make_up_the_whole():
    for total in (0, 1, 7, 8):
        parts = [Processes(rank, 3).share(total) for rank in range(3)]
        assert [i for part in parts for i in part] == list(range(total))
    assert ALONE.join(torch.arange(4), 4).tolist() == [0, 1, 2, 3]
    assert ALONE.gather(torch.zeros(2)).shape == (1, 2)


def test_no_episodes_is_refused(tiny_images):
    split = Dataset.open(tiny_images)["test"]
    model = varscale.create(backbone="tiny", metric="cosine")
    with pytest.raises(ValueError, match="Expected at least one episode, got 0"):
        evaluate(model, split, sampler_of(split), episodes=0)
