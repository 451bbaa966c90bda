"""Log-normal posteriors: exact KL, the hierarchical prior, and what it shrinks to."""

import math

import numpy as np
import pytest
import torch
from conftest import random_episode

import varscale
from varscale.data import GaussianTasks
from varscale.learn import follow, optimizers
from varscale.learn.log_adam import LogAdam
from varscale.learn.optimizers import one_optimizer, own_lr, scaler_optimizer, steps_itself
from varscale.scalers import DSVS, SVS, LowRankDAVS
from varscale.scalers.stochastic import LOG_LR, MIN_SIGMA, Decay


def log_normal_kl(loc, scale, prior_mean, prior_sigma):
    """KL of two log-normals by summing over alpha itself, not over its logarithm."""
    edges = np.exp(np.linspace(loc - 12 * scale, loc + 12 * scale, 400_001))
    alpha, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)

    def density(m, s):
        return np.exp(-((np.log(alpha) - m) ** 2) / (2 * s * s)) / (
            alpha * s * math.sqrt(2 * math.pi)
        )

    p, q = density(prior_mean, prior_sigma), density(loc, scale)
    return float((q * np.log(q / p) * width).sum())


def test_kl_is_that_of_alpha_and_alpha_is_positive():
    scaler = SVS(family="log-normal", init=7.0, sigma=0.3, prior_mean=4.0, prior_sigma=0.8).double()
    q = scaler(torch.zeros(1))
    expected = log_normal_kl(math.log(7.0), 0.3, math.log(4.0), 0.8)
    assert scaler.kl(q).item() == pytest.approx(expected, abs=1e-6)
    assert q.mean.item() == pytest.approx(7.0 * math.exp(0.3**2 / 2))
    draws = scaler.sample(q, torch.linspace(-40, 5, 100).unsqueeze(-1).double())
    assert (draws > 0).all()
    assert scaler.sample(q, torch.ones(1)).item() == pytest.approx(7.0 * math.exp(0.3))


def test_every_family_steps_itself_and_log_space_learns_its_spread():
    for scaler in (SVS(), DSVS(4), DSVS(4, family="log-normal"), LowRankDAVS(4)):
        assert steps_itself(scaler)
        assert isinstance(scaler_optimizer(scaler, 1), LogAdam)
        assert scaler.log_parameters() == [scaler.loc, scaler.sigma]
    for scaler in (SVS(family="normal"), DSVS(4, family="normal")):
        assert steps_itself(scaler)
        assert isinstance(scaler_optimizer(scaler, 1), torch.optim.SGD)
        assert not scaler.learn_sigma
        assert scaler.log_parameters() == []
    assert SVS(family="log-normal").learn_sigma
    fixed = SVS(family="log-normal", learn_sigma=False)
    assert not fixed.learn_sigma
    assert fixed.log_parameters() == [fixed.loc]
    assert own_lr(DSVS(4)) == LOG_LR
    assert own_lr(DSVS(4, lr=0.1)) == 0.1


def test_the_defaults_need_no_number():
    svs, d_svs = SVS(), DSVS(4)
    assert (svs.family, d_svs.family) == ("log-normal", "hierarchical")
    for scaler in (svs, d_svs):
        assert scaler.loc.exp().tolist() == pytest.approx([10.0] * scaler.size)
        assert scaler.sigma.tolist() == pytest.approx([0.2] * scaler.size)
        assert (scaler.lr, scaler.kl_weight, scaler.prior_sigma) == (0.02, 0.04, 3.0)
        assert scaler.prior_mean == pytest.approx(math.log(10.0))
    assert SVS(prior_mean=4.0).loc.exp().item() == pytest.approx(4.0)


def hierarchical(loc, scale):
    scaler = DSVS(len(loc), family="hierarchical", kl_weight=1.0).double()
    with torch.no_grad():
        scaler.loc.copy_(torch.tensor(loc))
        scaler.sigma.copy_(torch.tensor(scale))
    return scaler


def test_hierarchical_kl_is_the_least_over_all_normal_priors():
    scaler = hierarchical([0.1, 1.4, -0.7, 0.2], [0.3, 0.2, 0.9, 0.5])
    kl = scaler.kl(scaler(torch.zeros(4))).item()
    grid = [
        sum(
            math.log(s / sigma) + (sigma**2 + (mu - m) ** 2) / (2 * s * s) - 0.5
            for mu, sigma in zip(scaler.loc.tolist(), scaler.sigma.tolist(), strict=True)
        )
        for m in np.linspace(-1, 1.5, 251)
        for s in np.linspace(0.3, 2.0, 341)
    ]
    assert kl == pytest.approx(min(grid), abs=1e-4)
    assert kl <= min(grid) + 1e-12


def test_hierarchical_kl_gradients():
    scaler = hierarchical([0.1, 1.4, -0.7], [0.3, 0.2, 0.9])

    def kl(loc, scale):
        q = torch.distributions.LogNormal(loc, scale)
        return scaler.kl(q)

    inputs = [t.detach().clone().requires_grad_() for t in (scaler.loc, scaler.sigma)]
    assert torch.autograd.gradcheck(kl, inputs)


def test_one_scale_for_all_costs_nothing():
    """Equal dimensions are free at any level and spread: the scalar solution is the centre."""
    for level, spread in ((0.0, 0.2), (5.0, 1.0)):
        scaler = hierarchical([level] * 6, [spread] * 6)
        assert scaler.kl(scaler(torch.zeros(6))).item() == pytest.approx(0.0, abs=1e-12)


def train(scaler_options, noise, steps=300):
    tasks = GaussianTasks(spread=torch.full((12,), 1.0), noise=noise, n_way=5, n_shot=5, n_query=5)
    model = varscale.create(
        backbone="identity",
        backbone_options={"dim": 12},
        metric="euclidean",
        host_options={"normalize": "none"},
        scaler="d-svs",
        scaler_options={"init": 3.0, "family": "hierarchical", **scaler_options},
    )
    optimizer = one_optimizer(model, lr=0.03)
    for step in range(steps):
        model.loss(tasks.batch(4 * (step % 5), 4), index=4 * step).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.scaler.loc.detach()


def test_it_shrinks_to_one_scale_unless_the_data_tell_dimensions_apart():
    alike, apart = torch.full((12,), 1.5), torch.tensor([0.7] * 6 + [3.0] * 6)
    free = train({"kl_weight": 0.0}, alike)
    shrunk = train({"kl_weight": "elbo", "effective_tasks": 20}, alike)
    told = train({"kl_weight": "elbo", "effective_tasks": 20}, apart)
    assert shrunk.std() < 0.5 * free.std()  # twenty tasks, seen again and again, are overfitted
    assert told[:6].mean() - told[6:].mean() > 1.0


def test_a_decaying_scale_is_alpha_not_its_logarithm():
    scaler = Decay(family="log-normal", init=100.0)
    q = scaler(torch.zeros(2, 3))
    alpha = scaler.sample(q, torch.randn(2, 1))
    torch.testing.assert_close(alpha, torch.full((2, 1), 100.0))
    assert not alpha.requires_grad  # the likelihood does not move it


@pytest.mark.parametrize("joined", ["optimizers", "follow"])
@pytest.mark.parametrize("family", ["log-normal", "hierarchical"])
def test_a_spread_that_the_main_optimiser_learns_stays_positive(family, joined):
    scaler = DSVS(5, family=family, sigma=0.02)
    model = varscale.create(backbone="identity", backbone_options={"dim": 5}, scaler=scaler)
    if joined == "optimizers":
        (optimizer,) = optimizers(model, queries_per_task=1, lr=1.0)
    else:
        optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        follow(scaler, optimizer, queries_per_task=1)
    scaler.sigma.sum().backward()
    optimizer.step()  # Adam's first step is the rate: from 0.02 to -0.98
    assert scaler.sigma.tolist() == pytest.approx([MIN_SIGMA] * 5)


def test_the_bound_of_low_rank_weighs_a_task_by_one():
    assert LowRankDAVS(5, kl_weight="elbo").kl_weight == 1.0  # each has a scale of its own
    assert DSVS(5, kl_weight="elbo", effective_tasks=20).kl_weight == 0.05


def test_low_rank_starts_as_d_svs_and_never_looks_at_queries():
    torch.manual_seed(0)
    low, plain = LowRankDAVS(5, rank=2).double(), DSVS(5, family="hierarchical").double()
    task = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(low(task).mean, plain(task).mean, rtol=0.05, atol=0)
    assert not torch.equal(low(task).mean[0], low(task).mean[1])
    torch.testing.assert_close(low(1000 * task).mean, low(task).mean)  # of any length
    model = varscale.create(
        backbone="identity", backbone_options={"dim": 5}, scaler="d-avs-low-rank"
    ).double()
    assert not model.transductive
    episode = random_episode(queries=4)
    one = varscale.Episode(
        episode.support, episode.support_labels, episode.query[:, :1], None, n_way=3
    )
    torch.testing.assert_close(model(one)[0, 0], model(episode)[0, 0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SVS(family="hierarchical"), "use d-svs"),
        (lambda: SVS(family="lognormal"), "Did you mean 'log-normal'"),
        (lambda: SVS(family="log-normal", init=-1.0), "init > 0 with a log-normal prior"),
        (lambda: DSVS(3, family="hierarchical", prior_mean=0.0), "Expected prior_mean > 0"),
        (lambda: LowRankDAVS(3, family="normal"), "Expected the hierarchical family"),
        (lambda: LowRankDAVS(3, rank=0), "rank >= 1"),
        (
            lambda: LowRankDAVS(3, kl_weight="elbo", effective_tasks=9),
            "needs no number of training tasks",
        ),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_impossible_settings_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
