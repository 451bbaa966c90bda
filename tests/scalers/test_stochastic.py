import oracle
import pytest
import torch
from conftest import random_episode

import varscale
from varscale import functional as vf
from varscale.learn import optimizers
from varscale.learn.optimizers import scaler_optimizer
from varscale.scalers import DSVS, SVS


def closed_form(model, episode, alpha):
    """Gradient of the query-summed likelihood by alpha, for one task, in plain loops."""
    host = model.host
    centres = vf.normalize(vf.prototypes(episode.support, episode.support_labels, episode.n_way))[0]
    query = vf.normalize(episode.query)[0]
    query, centres, labels = query.tolist(), centres.tolist(), episode.query_labels[0].tolist()
    if host.metric == "cosine":
        logits = oracle.dot_logits(query, centres, alpha)
        return oracle.vector_gradient(logits, labels, query, centres, lambda q, c: q * c)
    logits = oracle.euclidean_logits(query, centres, alpha, host.kappa)
    return oracle.vector_gradient(
        logits, labels, query, centres, lambda q, c: -host.kappa * (q - c) ** 2
    )


def make(name, metric, kappa=0.5, **options):
    return varscale.create(
        backbone="identity",
        backbone_options={"dim": 5},
        scaler=name,
        metric=metric,
        host_options={"kappa": kappa},
        scaler_options={
            "family": "normal",
            "learn_sigma": True,
            "sigma": 0.5,
            "init": 3.0,
            **options,
        },
    ).double()


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("kappa", [0.5, 1.0])
@pytest.mark.parametrize("name", ["svs", "d-svs"])
def test_psi_step_equals_the_closed_form(name, metric, kappa):
    """mu and sigma after one step, against section 1.5 written out (and K1's printed sign not)."""
    model = make(name, metric, kappa, kl_weight=0.3, prior_mean=2.0, prior_sigma=4.0, lr=0.01)
    episode = random_episode(queries=6)
    scaler = model.scaler
    loss = model.loss(episode, index=7, seed=1)
    alpha = loss.alpha[0].detach()
    epsilon = (alpha - scaler.loc.detach()) / scaler.sigma.detach()
    g = torch.tensor(closed_form(model, episode, alpha.tolist()), dtype=torch.float64)
    g = g if name == "d-svs" else g.sum(0, keepdim=True)
    mu, sigma = scaler.loc.detach().clone(), scaler.sigma.detach().clone()
    expected_mu = mu - 0.01 * (g + 0.3 * (mu - 2.0) / 16)
    expected_sigma = sigma - 0.01 * (g * epsilon + 0.3 * (-1 / sigma + sigma / 16))

    (optimizer,) = optimizers(model, queries_per_task=6)
    loss.total.backward()
    optimizer.step()
    torch.testing.assert_close(scaler.loc.detach(), expected_mu, rtol=0, atol=1e-12)
    torch.testing.assert_close(scaler.sigma.detach(), expected_sigma, rtol=0, atol=1e-12)
    printed_sign = mu - 0.01 * (-g + 0.3 * (mu - 2.0) / 16)
    assert not torch.allclose(scaler.loc.detach(), printed_sign, atol=1e-6)


def test_two_tasks_average_their_query_summed_gradients():
    one = [make("d-svs", "cosine", lr=0.1) for _ in range(2)]
    for i, model in enumerate(one):
        model.loss(random_episode(seed=i), index=i).total.backward()
    both = make("d-svs", "cosine", lr=0.1)
    a, b = random_episode(seed=0), random_episode(seed=1)
    batch = varscale.Episode(
        *(
            torch.cat([x, y])
            for x, y in zip(list(vars(a).values())[:4], list(vars(b).values())[:4], strict=True)
        ),
        n_way=3,
    )
    both.loss(batch, index=0).total.backward()
    mean = (one[0].scaler.loc.grad + one[1].scaler.loc.grad) / 2
    torch.testing.assert_close(both.scaler.loc.grad, mean, rtol=0, atol=1e-12)


def test_learned_sigma_is_brought_back_to_its_floor():
    scaler = SVS(family="normal", learn_sigma=True, lr=1.0, kl_weight=0.0)
    optimizer = scaler_optimizer(scaler, queries_per_task=1)
    scaler.sigma.grad = torch.tensor([5.0])
    optimizer.step()
    assert scaler.sigma.item() == pytest.approx(0.01)


def test_learned_sigma_stays_positive_under_any_optimiser():
    """A raw value below the floor counts as the floor, and its gradient leads back."""
    scaler = SVS(family="normal", learn_sigma=True, prior_sigma=1.0)
    with torch.no_grad():
        scaler.sigma.fill_(-3.0)
    q = scaler(torch.zeros(1))
    assert q.stddev.item() == pytest.approx(0.01)
    scaler.kl(q).backward()
    assert scaler.sigma.grad.item() < 0


def test_whole_numbers_are_numbers():
    assert SVS(family="normal", init=100, sigma=1, prior_mean=1).loc.item() == 100.0
    assert DSVS(dim=2, family="normal", init=5).loc.tolist() == [5.0, 5.0]
    assert SVS(init=1, sigma=1, prior_mean=2).loc.item() == 0.0


def test_learned_sigma_goes_to_the_prior_spread():
    scaler = SVS(family="normal", learn_sigma=True, lr=0.05, prior_sigma=1.0).double()
    optimizer = scaler_optimizer(scaler, queries_per_task=1)
    for _ in range(400):
        optimizer.zero_grad()
        scaler.penalty(scaler(torch.zeros(1))).backward()
        optimizer.step()
    assert scaler.sigma.item() == pytest.approx(1.0, abs=1e-3)
    assert scaler.loc.item() == pytest.approx(1.0, abs=1e-3)


def test_default_rate_of_a_vector_grows_with_its_size():
    rates = [DSVS(dim=m, family="normal").lr for m in (1600, 512, 256, 64)]
    assert rates == [16.0, 5.12, 2.56, 0.64]
    assert DSVS(dim=64, family="normal", lr=3.0).lr == 3.0


def test_elbo_weight():
    for family in ("normal", "log-normal"):
        scaler = SVS(family=family, kl_weight="elbo", effective_tasks=20_000)
        assert scaler.kl_weight == 1 / 20_000
        with pytest.raises(ValueError, match="needs the number of training tasks"):
            SVS(family=family, kl_weight="elbo")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SVS(family="normal", sigma=-0.2), "standard deviation sigma >= 0, got -0.2"),
        (lambda: SVS(family="normal", sigma=float("nan")), "standard deviation"),
        (lambda: SVS(family="normal", sigma=0.0), "the KL of a point is infinite"),
        (lambda: SVS(family="normal", sigma=0.001, learn_sigma=True), "initial sigma >= 0.01"),
        (lambda: SVS(family="normal", prior_sigma=0.0), "prior_sigma > 0, got 0.0"),
        (
            lambda: DSVS(4, family="normal", prior_sigma="square"),
            "a number or \"sqrt\", got 'square'",
        ),
        (lambda: SVS(family="normal", prior_sigma=-1.0), "prior_sigma > 0"),
        (lambda: SVS(family="normal", prior_mean=float("inf")), "finite prior_mean"),
        (lambda: SVS(family="normal", init=float("nan")), "finite init"),
        (lambda: SVS(family="normal", lr=0.0), "lr > 0"),
        (lambda: SVS(family="normal", lr=3.0), r"< 2, got 3.*Use lr < 2"),
        (lambda: SVS(family="normal", kl_weight=-1.0), "finite kl_weight >= 0"),
        (lambda: SVS(init=float("nan")), "init > 0 with a log-normal prior, got nan"),
        (lambda: DSVS(4, prior_mean=float("inf")), "prior_mean > 0 with a hierarchical prior"),
        (lambda: SVS(sigma=0.001), "initial sigma >= 0.01"),
        (lambda: DSVS(dim=0), "positive embedding size, got 0"),
        (lambda: DSVS(dim=0, family="normal"), "positive embedding size, got 0"),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_impossible_settings_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.usefixtures("as_user")
def test_a_misspelt_weight_is_refused():
    with pytest.raises(ValueError, match="'elob'"):
        SVS(kl_weight="elob")


def test_the_bound_is_sharp():
    SVS(family="normal", lr=1.999)
    SVS(family="normal", lr=0.999, learn_sigma=True)
    with pytest.raises(ValueError, match=r"< 1, got 1.*by -1 and diverge. Use lr < 1"):
        SVS(family="normal", lr=1.0, learn_sigma=True)
    with pytest.raises(ValueError, match="diverge"):
        SVS(family="normal", lr=2.0)
    SVS(family="normal", lr=50.0, kl_weight=0.0)  # without a prior there is nothing to diverge from
