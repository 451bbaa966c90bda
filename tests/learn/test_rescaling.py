"""One factor of the scale: where the NLL of some tasks is least, wherever the search begins."""

import copy
import math

import pytest
import torch
from conftest import random_episode

import varscale
from varscale.backbones import ResNet12
from varscale.data import Dataset, EpisodeSampler
from varscale.functional import query_nll
from varscale.learn.rescaling import begin_at_data, least, replace_items, rescale
from varscale.scalers import DAVS, DSVS, SVS

SCALERS = {
    "svs": {},
    "d-svs": {},
    "d-svs log-normal": {"family": "log-normal"},
    "avs": {"hidden": 4},
    "d-avs": {"hidden": 4},
    "d-avs-low-rank": {"rank": 2},
}


def make(host="pn", scaler="svs", metric="cosine"):
    torch.manual_seed(0)
    conditioned = host == "tadam"
    model = varscale.create(
        host,
        backbone=ResNet12(image_size=8, width=1 / 64) if conditioned else "identity",
        backbone_options=None if conditioned else {"dim": 5},
        scaler=scaler.partition(" ")[0],
        scaler_options=SCALERS[scaler],
        metric=metric,
    ).double()
    with torch.no_grad():  # dimensions of their own, and tasks that differ
        location, *_ = model.scaler.log_parameters()
        location.add_(0.3 * torch.randn_like(location))
        if hasattr(model.scaler, "head"):
            torch.nn.init.normal_(model.scaler.head.weight, std=0.1)
    return model.eval()


def embedded(dim, n=3, noise=0.8):
    """Tasks of three overlapping classes, already embedded, in one batch."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(n, 3, dim, generator=generator, dtype=torch.float64)
    labels = torch.arange(3).repeat(n, 2), torch.arange(3).repeat(n, 6)
    support, query = (
        centres[torch.arange(n)[:, None], y]
        + noise * torch.randn(*y.shape, dim, generator=generator, dtype=torch.float64)
        for y in labels
    )
    return [varscale.Episode(support, labels[0], query, labels[1], n_way=3)]


def objective(model, tasks):
    """NLL of all queries, and the prior of log alpha as if it were one more."""
    location, *_ = model.scaler.log_parameters()
    total = (location.mean() - math.log(10.0)) ** 2 / (2 * 3.0**2)
    for task in tasks:
        log_p = model.predict(task.support, task.support_labels, task.query, n_way=task.n_way)
        total = total + query_nll(log_p, task.query_labels).sum()
    return total


def slope(model, tasks):
    """Derivative of the objective by the logarithm of a common factor."""
    location, *_ = model.scaler.log_parameters()
    (gradient,) = torch.autograd.grad(objective(model, tasks), location)
    return gradient.sum().item()


CASES = [
    *(("pn", scaler, metric) for scaler in SCALERS for metric in ("cosine", "euclidean")),
    *(("matching", scaler, "cosine") for scaler in ("svs", "d-svs", "d-avs")),
    *(("tadam", scaler, "euclidean") for scaler in ("svs", "d-svs", "d-avs")),
]


@pytest.mark.parametrize(("host", "scaler", "metric"), CASES)
def test_it_finds_the_minimum_and_returns_to_it_from_afar(host, scaler, metric):
    model = make(host, scaler, metric)
    tasks = embedded(model.host.out_dim)
    location, *_ = model.scaler.log_parameters()
    before = location.detach().clone()
    others = {
        name: t.clone() for name, t in model.state_dict().items() if "loc" not in name.split(".")
    }
    factor = rescale(model, tasks)
    found = location.detach().clone()
    shift = torch.full_like(before, math.log(factor))
    torch.testing.assert_close(found - before, shift, rtol=0, atol=1e-12)
    assert all(torch.equal(model.state_dict()[name], t) for name, t in others.items())

    # The derivative is zero there: a Newton step would be shorter than the search's last interval.
    here, h = slope(model, tasks), 1e-4
    model.scaler.rescale_(math.exp(h))
    curvature = (slope(model, tasks) - here) / h
    model.scaler.rescale_(math.exp(-h))
    assert curvature > 0
    assert abs(here / curvature) < 2e-4

    with torch.no_grad():
        best = objective(model, tasks).item()
        grid = []
        for step in torch.linspace(-8, 8, 81).tolist():
            location.copy_(found + step)
            grid.append(objective(model, tasks).item())
    assert best <= min(grid) + 1e-6 * abs(best)

    for wrong in (1e-3, 1e3):
        with torch.no_grad():
            location.copy_(found)
        model.scaler.rescale_(wrong)
        assert rescale(model, tasks) == pytest.approx(1 / wrong, rel=5e-4)
        torch.testing.assert_close(location.detach(), found, rtol=0, atol=4e-4)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tasks_without_an_error_give_a_finite_scale(metric, dtype):
    """Nothing but the prior holds it: where each query is at its class, the NLL falls to zero."""
    model = make(metric=metric).to(dtype)
    eye = torch.eye(5, dtype=dtype)[None, :3]
    labels = torch.arange(3)[None]
    task = varscale.Episode(eye, labels, eye, labels, n_way=3)
    for start in (1e-3, 10.0, 1e4):
        with torch.no_grad():
            model.scaler.loc.fill_(math.log(start))
        rescale(model, [task] * 4)
        assert 5 < model.scaler.loc.exp().item() < 100
    wrong = varscale.Episode(eye, labels, eye, labels.roll(1, dims=1), n_way=3)
    rescale(model, [wrong] * 4)
    assert 1e-4 < model.scaler.loc.exp().item() < 5


def test_the_prior_counts_as_one_query():
    """Without tasks it is all there is, and many tasks leave nothing of it."""
    model = make()
    rescale(model, [])
    assert model.scaler.loc.exp().item() == pytest.approx(10.0, rel=2e-4)


def test_tasks_one_by_one_tell_the_same_as_together():
    together, apart = make(scaler="d-avs"), make(scaler="d-avs")
    (batch,) = embedded(5)
    single = [
        varscale.Episode(**{name: t[n : n + 1] for name, t in batch.tensors.items()}, n_way=3)
        for n in range(3)
    ]
    assert rescale(apart, single) == pytest.approx(rescale(together, [batch]), rel=2e-4)


def test_the_least_of_a_parabola_and_of_a_kink():
    assert least(lambda x: (x - 2.5) ** 2, -14, 14) == pytest.approx(2.5, abs=1e-4)
    assert least(lambda x: abs(x + 13.9), -14, 14) == pytest.approx(-13.9, abs=1e-4)
    assert least(lambda x: x, -1, 1) == pytest.approx(-1, abs=1e-4)


def first_tasks(name, n=4):
    split = Dataset.open(name)["train"]
    rows = EpisodeSampler(split.labels, 3, 1, 4).batch(0, n)
    return [split.episode(rows[k : k + 1]) for k in range(n)]


@pytest.mark.parametrize("host", ["pn", "tadam"])
@pytest.mark.parametrize("scaler", ["svs", "d-svs", "d-avs"])
@pytest.mark.parametrize("training", [True, False])
def test_the_beginning_changes_the_scale_and_nothing_else(tiny_images, host, scaler, training):
    torch.manual_seed(0)
    resnet = ResNet12(in_channels=1, image_size=8, width=1 / 16)
    model = varscale.create(
        host,
        backbone=resnet if host == "tadam" else "tiny",
        scaler=scaler,
        metric="cosine" if host == "pn" else "euclidean",
    )
    model.train(training)
    before = copy.deepcopy(model.state_dict())
    tasks, state = first_tasks(tiny_images), torch.get_rng_state()
    assert any("running" in name for name in before)
    factor = begin_at_data(model, tasks)
    place = "scaler.shared.loc" if scaler == "d-avs" else "scaler.loc"
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == (name != place), name
    shift = torch.full_like(before[place], math.log(factor))
    torch.testing.assert_close(model.state_dict()[place] - before[place], shift)
    assert model.training == model.host.training == training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())

    twin = copy.deepcopy(model)  # the embedding is that of training
    twin.load_state_dict(before)
    twin.host.train()
    with torch.no_grad():
        seen = [replace_items(task, *twin.host.embed(task)) for task in tasks]
    assert rescale(twin, seen) == pytest.approx(factor, rel=1e-3)


def test_replaced_items_keep_the_labels():
    task = random_episode(tasks=2)
    other = replace_items(task, task.support + 1, task.query + 2)
    assert torch.equal(other.support, task.support + 1)
    assert torch.equal(other.query, task.query + 2)
    assert torch.equal(other.support_labels, task.support_labels)
    assert torch.equal(other.query_labels, task.query_labels)
    assert other.n_way == task.n_way


@pytest.mark.parametrize("build", [SVS, lambda **o: DSVS(4, **o), lambda **o: DAVS(4, **o)])
def test_a_factor_multiplies_alpha_and_a_normal_has_none(build):
    scaler = build()
    before = scaler(torch.ones(2, 4)).mean
    scaler.rescale_(3.0)
    torch.testing.assert_close(scaler(torch.ones(2, 4)).mean, 3 * before)
    with pytest.raises(ValueError, match="Use a log-normal or hierarchical family"):
        build(family="normal").rescale_(3.0)
