import pytest
import torch
from conftest import random_episode

import varscale
from varscale import functional as vf
from varscale.learn import optimizers
from varscale.scalers import AVS, DAVS


def make(**options):
    torch.manual_seed(0)
    return varscale.create(
        backbone="identity",
        backbone_options={"dim": 5},
        scaler="d-avs",
        metric="cosine",
        scaler_options={"hidden": 7, **options},
        objective_options={"aux_epochs": None},
    ).double()


@pytest.mark.parametrize("scale", [0.3, "generated"])
def test_gradient_at_the_generator_equals_the_closed_form(scale):
    """dJ/dmu = g + w (mu - mu0)/sigma0^2 and dJ/dsigma likewise, before the chain rule."""
    model = make(sigma=scale, kl_weight=0.5, prior_mean=2.0, prior_sigma=3.0)
    episode = random_episode(queries=6)
    captured = {}

    def capture(_module, _inputs, q):
        for name in ("loc", "scale"):
            leaf = getattr(q, name).detach().clone().requires_grad_()
            captured[name] = leaf
        return torch.distributions.Normal(captured["loc"], captured["scale"])

    model.scaler.register_forward_hook(capture)
    loss = model.loss(episode, index=3)
    loss.total.backward()
    mu, sigma = captured["loc"], captured["scale"]
    alpha = loss.alpha.detach()
    epsilon = (alpha - mu.detach()) / sigma.detach()
    query = vf.normalize(episode.query)[0]
    centres = vf.normalize(vf.prototypes(episode.support, episode.support_labels, 3))[0]
    p = (query @ (alpha[0] * centres).T).softmax(-1)
    onehot = torch.nn.functional.one_hot(episode.query_labels[0], 3)
    g = torch.einsum("jk,jm,km->m", p - onehot, query, centres)
    expected_mu = g + 0.5 * (mu.detach()[0] - 2.0) / 9
    torch.testing.assert_close(6 * mu.grad[0], expected_mu, rtol=0, atol=1e-12)
    expected_sigma = g * epsilon[0] + 0.5 * (-1 / sigma.detach()[0] + sigma.detach()[0] / 9)
    torch.testing.assert_close(6 * sigma.grad[0], expected_sigma, rtol=0, atol=1e-12)


def test_generated_scales_start_near_one():
    torch.manual_seed(0)
    q = DAVS(dim=64)(torch.randn(10, 64))
    assert 0.5 < q.mean.mean() < 2
    assert torch.equal(q.stddev, torch.ones(10, 64))


@pytest.mark.parametrize("link", ["exp", "softplus", "identity"])
def test_mean_links_are_guarded(link):
    scaler = DAVS(dim=4, hidden=3, mean_link=link)
    torch.nn.init.constant_(scaler.head.bias, 1e4)
    q = scaler(torch.zeros(2, 4))
    assert q.mean.isfinite().all()
    expected = {"exp": torch.tensor(10.0).exp().item(), "softplus": 1e4, "identity": 1e4}[link]
    assert q.mean[0, 0].item() == pytest.approx(expected, rel=0.01)


def test_generated_sigma_has_a_floor_and_a_ceiling():
    scaler = DAVS(dim=4, hidden=3, sigma="generated")
    torch.nn.init.constant_(scaler.head.bias, -1e4)
    assert scaler(torch.zeros(4)).stddev.min().item() == pytest.approx(0.01)
    torch.nn.init.constant_(scaler.head.bias, 1e4)
    assert scaler(torch.zeros(4)).stddev.isfinite().all()


@pytest.mark.parametrize("bias", [-50.0, 50.0])
def test_what_is_beyond_a_guard_can_come_back(bias):
    scaler = DAVS(dim=4, hidden=3, sigma="generated")
    torch.nn.init.constant_(scaler.head.bias, bias)
    scaler.kl(scaler(torch.zeros(4))).backward()
    gradient = scaler.head.bias.grad
    assert ((gradient > 0) == (bias > 0)).all()


def test_transductive_and_support_only_differ_and_say_so():
    published, inductive = make(), make(task_prototype="support")
    assert published.transductive
    assert not inductive.transductive
    assert "task_prototype=support+query" in repr(published.scaler)
    episode = random_episode(queries=6)
    first = varscale.Episode(
        episode.support, episode.support_labels, episode.query[:, :1], None, n_way=3
    )
    torch.testing.assert_close(inductive(episode)[:, :1], inductive(first))
    assert not torch.allclose(published(episode)[:, :1], published(first))


def test_a_kl_for_every_task_is_the_exact_bound():
    assert DAVS(dim=4, kl_weight="elbo").kl_weight == 1.0
    assert AVS(dim=4, kl_weight="elbo").kl_weight == 1.0


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean_link": "expp"}, "Unknown mean_link 'expp'.*Did you mean 'exp'"),
        ({"task_prototype": "supports"}, "Did you mean 'support'"),
        ({"sigma": "learned"}, "a number or \"generated\", got 'learned'"),
        ({"sigma": -1.0}, "standard deviation"),
        ({"sigma": 0.0}, "the KL of a point is infinite"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DAVS(dim=4, **options)


def test_it_joins_the_main_optimiser_with_its_own_rate():
    model = varscale.create(
        backbone="linear",
        backbone_options={"dim": 5},
        scaler="d-avs",
        scaler_options={"lr": 0.5, "hidden": 3},
    )
    (optimizer,) = optimizers(model, queries_per_task=75, lr=1e-3, weight_decay=0.1)
    host, generator = optimizer.param_groups
    assert (host["lr"], generator["lr"]) == (1e-3, 0.5)
    assert (host["weight_decay"], generator["weight_decay"]) == (0.1, 0.0)
