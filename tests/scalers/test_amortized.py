import math

import oracle
import pytest
import torch
from conftest import random_episode

import varscale
from varscale import functional as vf
from varscale.learn import optimizers
from varscale.scalers import AVS, DAVS, DSVS, SVS


def make(**options):
    torch.manual_seed(0)
    return varscale.create(
        backbone="identity",
        backbone_options={"dim": 5},
        scaler="d-avs",
        metric="cosine",
        scaler_options={"family": "normal", "hidden": 7, **options},
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
    q = DAVS(dim=64, family="normal")(torch.randn(10, 64))
    assert 0.5 < q.mean.mean() < 2
    assert torch.equal(q.stddev, torch.ones(10, 64))


@pytest.mark.parametrize("link", ["exp", "softplus", "identity"])
def test_mean_links_are_guarded(link):
    scaler = DAVS(dim=4, family="normal", hidden=3, mean_link=link)
    torch.nn.init.constant_(scaler.head.bias, 1e4)
    q = scaler(torch.zeros(2, 4))
    assert q.mean.isfinite().all()
    expected = {"exp": torch.tensor(10.0).exp().item(), "softplus": 1e4, "identity": 1e4}[link]
    assert q.mean[0, 0].item() == pytest.approx(expected, rel=0.01)


def test_generated_sigma_has_a_floor_and_a_ceiling():
    scaler = DAVS(dim=4, family="normal", hidden=3, sigma="generated")
    torch.nn.init.constant_(scaler.head.bias, -1e4)
    assert scaler(torch.zeros(4)).stddev.min().item() == pytest.approx(0.01)
    torch.nn.init.constant_(scaler.head.bias, 1e4)
    assert scaler(torch.zeros(4)).stddev.isfinite().all()


@pytest.mark.parametrize("bias", [-50.0, 50.0])
def test_what_is_beyond_a_guard_can_come_back(bias):
    scaler = DAVS(dim=4, family="normal", hidden=3, sigma="generated")
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
    for family in ("normal", "hierarchical"):
        assert DAVS(dim=4, family=family, kl_weight="elbo").kl_weight == 1.0
        assert AVS(dim=4, family=family, kl_weight="elbo").kl_weight == 1.0


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean_link": "expp"}, "Unknown mean_link 'expp'.*Did you mean 'exp'"),
        ({"task_prototype": "supports"}, "Did you mean 'support'"),
        ({"sigma": "learned"}, "a number, or of a normal \"generated\", got 'learned'"),
        ({"sigma": "generated", "family": "hierarchical"}, "a number, or of a normal"),
        ({"init": 20.0, "family": "normal"}, "generates its scale; it takes no init=20.0"),
        ({"init": -1.0, "family": "hierarchical"}, "init > 0"),
        ({"family": "log-normal"}, "Unknown family 'log-normal'; known: hierarchical, normal"),
        ({"sigma": -1.0}, "standard deviation"),
        ({"sigma": 0.0}, "the KL of a point is infinite"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    families = [options["family"]] if "family" in options else ["normal", "hierarchical"]
    for family in families:
        with pytest.raises(ValueError, match=message):
            DAVS(dim=4, **{**options, "family": family})


def test_it_joins_the_main_optimiser_with_its_own_rate():
    model = varscale.create(
        backbone="linear",
        backbone_options={"dim": 5},
        scaler="d-avs",
        scaler_options={"family": "normal", "lr": 0.5, "hidden": 3},
    )
    (optimizer,) = optimizers(model, queries_per_task=75, lr=1e-3, weight_decay=0.1)
    host, generator = optimizer.param_groups
    assert (host["lr"], generator["lr"]) == (1e-3, 0.5)
    assert (host["weight_decay"], generator["weight_decay"]) == (0.1, 0.0)


# --- the hierarchical family: what a task adds to a shared scale (M34) ---------------------------


def awake(cls=DAVS, **options):
    """A generator that has learned something, over a shared scale that has, too."""
    torch.manual_seed(0)
    scaler = cls(dim=4, hidden=8, **options).double()
    with torch.no_grad():
        torch.nn.init.normal_(scaler.head.weight, std=0.5)
        torch.nn.init.normal_(scaler.head.bias, std=0.5)
        scaler.shared.loc.add_(torch.randn_like(scaler.shared.loc))
        scaler.shared.sigma.mul_(1 + torch.rand_like(scaler.shared.sigma))
    return scaler


@pytest.mark.parametrize(("cls", "shared"), [(DAVS, DSVS(4)), (AVS, SVS())])
def test_it_begins_as_its_shared_scale(cls, shared):
    torch.manual_seed(0)
    scaler = cls(dim=4)
    task = torch.randn(3, 4)
    q, p = scaler(task), shared(task)
    assert type(scaler.shared) is type(shared)
    assert isinstance(q, torch.distributions.LogNormal)
    assert torch.equal(q.loc, p.loc)
    assert torch.equal(q.scale, p.scale)
    torch.testing.assert_close(scaler.kl(q), shared.kl(p))
    assert q.loc.exp().flatten().tolist() == pytest.approx([10.0] * q.loc.numel())


def test_where_it_begins_the_kl_of_a_vector_is_zero():
    for init in (0.1, 10.0, 1000.0):
        scaler = DAVS(dim=4, init=init).double()
        q = scaler(torch.randn(3, 4).double())
        torch.testing.assert_close(scaler.kl(q), torch.zeros(3).double(), rtol=0, atol=1e-12)
        assert q.loc.exp().flatten().tolist() == pytest.approx([init] * 12)
        gradients = torch.autograd.grad(scaler.kl(q).sum(), scaler.log_parameters())
        for gradient in gradients:
            torch.testing.assert_close(gradient, torch.zeros(4).double(), rtol=0, atol=1e-12)


def test_its_gradient_reaches_the_network_from_the_first_step_on():
    """The last layer begins at zero: it learns at the first step, the one before at the second."""
    model = make(family="hierarchical")
    model.loss(random_episode(queries=6), index=0).total.backward()
    assert model.scaler.head.weight.grad.abs().sum() > 0
    assert model.scaler.hidden.weight.grad.abs().sum() == 0
    with torch.no_grad():
        model.scaler.head.weight -= 0.1 * model.scaler.head.weight.grad
    model.zero_grad()
    model.loss(random_episode(queries=6), index=0).total.backward()
    assert model.scaler.hidden.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("cls", [DAVS, AVS])
def test_posterior_and_kl_equal_plain_loops(cls):
    scaler = awake(cls, prior_mean=4.0, prior_sigma=0.7)
    tasks = torch.randn(5, 4).double()
    q = scaler(tasks)
    layers = [(m.weight.tolist(), m.bias.tolist()) for m in (scaler.hidden, scaler.head)]
    sigma = scaler.shared.sigma.tolist()
    for n, task in enumerate(tasks.tolist()):
        added = oracle.generated(task, *layers)
        loc = [m + h for m, h in zip(scaler.shared.loc.tolist(), added, strict=True)]
        assert q.loc[n].tolist() == pytest.approx(loc, rel=0, abs=1e-12)
        assert q.scale[n].tolist() == pytest.approx(sigma, rel=0, abs=1e-12)
        if cls is DAVS:
            expected = oracle.hierarchical_kl(loc, sigma)
            assert scaler.kl(q)[n].item() == pytest.approx(expected, rel=0, abs=1e-12)
        else:
            expected = oracle.gaussian_kl(loc[0], sigma[0], math.log(4.0), 0.7)
            assert scaler.kl(q)[n].item() == pytest.approx(expected, abs=1e-6)
    assert (q.loc.std(0) > 0.01).all()


@pytest.mark.parametrize("cls", [DAVS, AVS])
def test_gradient_of_the_kl_by_finite_differences(cls):
    scaler = awake(cls)
    tasks = torch.randn(3, 4).double()
    weights = dict(scaler.named_parameters())

    def kl(*values):
        named = dict(zip(weights, values, strict=True))
        return torch.func.functional_call(
            Penalised(scaler), {f"s.{k}": v for k, v in named.items()}, tasks
        )

    inputs = [p.detach().clone().requires_grad_() for p in weights.values()]
    assert torch.autograd.gradcheck(kl, inputs)


class Penalised(torch.nn.Module):
    """The KL of a scaler, as a module."""

    def __init__(self, scaler):
        super().__init__()
        self.s = scaler

    def forward(self, task):
        return self.s.kl(self.s(task))


def test_a_tasks_kl_does_not_depend_on_its_neighbours():
    scaler = awake()
    tasks = torch.randn(6, 4).double()
    whole = scaler.kl(scaler(tasks))
    single = torch.stack([scaler.kl(scaler(task)) for task in tasks])
    torch.testing.assert_close(whole, single, rtol=0, atol=1e-12)
    assert whole.std() > 0.01


def test_the_network_and_the_shared_scale_have_optimisers_of_their_own():
    model = varscale.create(
        backbone="linear", backbone_options={"dim": 5}, scaler="d-avs", scaler_options={"lr": 0.5}
    )
    main, own = optimizers(model, queries_per_task=75, lr=1e-3, weight_decay=0.1)
    host, network = main.param_groups
    assert (host["lr"], network["lr"]) == (1e-3, 0.5)
    assert (host["weight_decay"], network["weight_decay"]) == (0.1, 0.0)
    shared = model.scaler.shared
    assert own.param_groups[0]["params"] == [shared.loc, shared.sigma]
    assert own.param_groups[0]["lr"] == 0.02


def test_a_spread_of_the_shared_scale_stays_positive():
    scaler = DAVS(dim=4)
    with torch.no_grad():
        scaler.shared.sigma.fill_(-1.0)
    assert scaler(torch.zeros(4)).scale.tolist() == pytest.approx([0.01] * 4)
    scaler.project_()
    assert scaler.shared.sigma.tolist() == pytest.approx([0.01] * 4)
