"""Every check value of the paper's mathematics, to the printed digits."""

import math
from dataclasses import replace

import pytest
import torch

from varscale import functional as vf
from varscale.backbones import Conv4, ResNet12
from varscale.hosts import Tadam
from varscale.learn.cotraining import CotrainingPlan
from varscale.learn.optimizers import scaler_optimizer
from varscale.paper.grid import config_of
from varscale.scalers import DAVS, DSVS, SVS

pytestmark = pytest.mark.paper


def f64(x):
    return torch.tensor(x, dtype=torch.float64)


@pytest.mark.parametrize(
    ("loc", "scale", "prior_mean", "prior_sigma", "expected", "digits"),
    [
        (1.3, 0.7, -0.5, 2.0, 1.0160721245, 10),
        (100.0, 0.2, 1.0, 1.0, 4901.629438, 6),
        (100.0, 0.2, 1.0, 1600.0, 8.489111, 6),
    ],
)
def test_gaussian_kl(loc, scale, prior_mean, prior_sigma, expected, digits):
    kl = vf.gaussian_kl(f64(loc), f64(scale), prior_mean, prior_sigma)
    assert round(kl.item(), digits) == expected


def test_kl_of_1600_dimensions():
    scaler = DSVS(dim=1600, family="normal").double()
    assert scaler.kl(scaler(torch.zeros(1600))).item() == pytest.approx(13582.58, abs=0.005)


DISTANCES = f64([[0.2, 1.0, 1.5], [0.9, 0.4, 1.2]])
LABELS = torch.tensor([0, 1])


def test_gradient_example_and_its_sign():
    alpha = f64(2.0).requires_grad_()
    logits = -alpha * DISTANCES
    p = logits.softmax(-1)
    expected = f64([[0.783595, 0.158205, 0.058200], [0.234352, 0.637034, 0.128615]])
    torch.testing.assert_close(p, expected, rtol=0, atol=5e-7)
    loss = vf.query_nll(logits, LABELS)
    assert round(loss.item(), 6) == 0.694796
    (gradient,) = torch.autograd.grad(loss, alpha)
    assert round(gradient.item(), 6) == -0.422292

    by_query = DISTANCES.gather(1, LABELS[:, None]).squeeze(1) - (p * DISTANCES).sum(-1)
    assert [round(g, 6) for g in by_query.tolist()] == [-0.202225, -0.220068]
    # Algorithm 1 prints the opposite sign (K1): following it would climb the loss.
    printed = -by_query.sum()
    assert round(printed.item(), 6) == 0.422292
    uphill = vf.query_nll(-(alpha - 0.1 * printed) * DISTANCES, LABELS)
    downhill = vf.query_nll(-(alpha - 0.1 * gradient) * DISTANCES, LABELS)
    assert downhill < loss < uphill


def on_circle(degrees):
    angle = math.radians(degrees)
    return [math.cos(angle), math.sin(angle)]


def test_figure_1_geometry():
    query = f64([on_circle(-45)])
    prototypes = f64([on_circle(45), on_circle(270)])

    def distances(alpha):
        return [round(d, 4) for d in vf.squared_euclidean(query, prototypes, alpha)[0].tolist()]

    assert distances(1.0) == [2.0, 0.5858]
    assert distances(f64([1.5, 0.5])) == [1.0, 0.7929]  # the formula: no change of class
    assert distances(f64([2.25, 0.25])) == [0.5, 1.1464]  # what the figure draws: class 1


def prior_only(scaler, steps, n_query=75):
    """Follow the prior: the likelihood of a task without queries is zero."""
    optimizer = scaler_optimizer(scaler, n_query)
    for _ in range(steps):
        optimizer.zero_grad()
        (scaler.penalty(scaler(torch.zeros(1))) / n_query).backward()
        optimizer.step()
    return scaler.loc.item()


@pytest.mark.parametrize(
    ("init", "prior_mean", "expected"),
    [
        (100.0, 1.0, 14.3969),
        (1000.0, 1.0, 136.1864),
        (1.0, 1000.0, 864.8136),
        (1.0, 100.0, 86.6031),
    ],
)
def test_prior_only_trajectories(init, prior_mean, expected):
    scaler = SVS(family="normal", init=init, prior_mean=prior_mean).double()
    factor = 1 - scaler.lr * scaler.kl_weight / scaler.prior_sigma**2
    first = prior_only(scaler, steps=100)
    assert first == pytest.approx(prior_mean + (init - prior_mean) * factor**100, abs=1e-9)
    # The remaining 19,900 of 20,000 steps, by the factor that the first hundred have shown.
    assert round(prior_mean + (first - prior_mean) * factor**19_900, 4) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("as_user")  # twenty thousand steps
def test_prior_only_trajectory_step_by_step():
    assert round(prior_only(SVS(family="normal").double(), steps=20_000), 4) == 14.3969


def test_divergence_and_its_refusal():
    mu, trajectory = 100.0, []
    for _ in range(3):
        mu -= 16 * (mu - 1)
        trajectory.append(mu)
    assert trajectory == [-1484, 22276, -334124]
    with pytest.raises(ValueError, match=r"< 2, got 16.*by -15.*Use lr < 2"):
        DSVS(dim=1600, family="normal", lr=16.0, prior_sigma=1.0, kl_weight=1.0)
    DSVS(dim=1600, lr=16.0, prior_sigma=1.0, kl_weight=1.0)  # in log space steps are bounded


def test_lambda():
    index = 100 * (torch.tensor([1, 75, 150, 151]) - 1)
    weight = vf.auxiliary_weight(index, gamma=150.0)
    assert [round(w, 5) for w in weight.tolist()] == [0.99333, 0.5, 0.0, 0.0]


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_tadam_probability_of_a_cotraining_step():
    plan = CotrainingPlan()
    p = [plan.probability(t, 30_000) for t in (0, 1500, 15_000, 28_500)]
    assert [round(x, 4) for x in p] == [0.9, 0.81, 0.3138, 0.1216]
    text = replace(plan, offset=0)  # the reading of the text is one power behind
    assert [text.probability(t, 30_000) for t in (0, 1499, 1500)] == [1.0, 1.0, 0.9]


@pytest.mark.parametrize("name", ["tadam_5w1s", "tadam_5w5s", "tadam_dsvs_5w1s", "tadam_dsvs_5w5s"])
def test_tadam_learning_rate(name):
    config = config_of(name)
    assert (config.steps, config.cotraining, config.clip, config.clip_by) == (
        30_000,
        True,
        1.0,
        "variable",
    )
    rates = [config.lr * config.rate_factor(t) for t in (0, 15_001, 17_501, 20_001)]
    assert rates == pytest.approx([0.1, 0.01, 0.001, 0.0001], rel=1e-12)


def test_parameter_counts():
    assert count(ResNet12()) == 7_996_800
    tadam = Tadam(ResNet12())
    assert count(tadam) - count(tadam.backbone) == 7_144_344
    assert len(tadam.gammas) == len(tadam.betas) == 12
    assert count(Conv4()) == 113_088
    assert count(Conv4(in_channels=1, image_size=28)) == 111_936
    counts = [count(DAVS(dim=m, family="normal")) for m in (1600, 256, 64)]
    assert counts == [2_883_800, 461_912, 115_928]


@pytest.mark.parametrize(("size", "dim"), [(84, 1600), (32, 256), (28, 64)])
def test_conv4_embedding_sizes(size, dim):
    assert Conv4(image_size=size).out_dim == dim


@pytest.mark.parametrize(("way", "floor"), [(5, 0.904832), (20, 2.078154)])
def test_unscaled_cosine_cannot_go_below_its_floor(way, floor):
    # Non-negative embeddings at their best: the query on its prototype, all others orthogonal.
    centres = torch.eye(way, dtype=torch.float64)
    loss = vf.query_nll(vf.cosine_logits(centres[:1], centres), torch.tensor([0]))
    assert round(loss.item(), 6) == floor


def test_unscaled_normalised_euclid_is_cosine_at_two():
    centres = torch.eye(5, dtype=torch.float64)
    euclid = vf.euclidean_logits(centres[:1], centres, kappa=1.0)
    assert round(vf.query_nll(euclid, torch.tensor([0])).item(), 4) == 0.4327


def test_kl_of_the_published_start_dwarfs_the_likelihood():
    scaler = SVS(family="normal").double()
    assert scaler.kl(scaler(torch.zeros(1))).item() > 40 * 75 * math.log(5)
