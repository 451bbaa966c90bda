"""Model and objective: the loss's parts, and the cases in which one method becomes another."""

import pytest
import torch
from conftest import host_logits, random_episode

import varscale
from varscale import functional as vf
from varscale.data import GaussianTasks
from varscale.learn import optimizers


def make(scaler, *, metric="cosine", backbone="identity", objective=None, host=None, **options):
    torch.manual_seed(0)
    model = varscale.create(
        backbone=backbone,
        backbone_options={"dim": 5} if backbone != "tiny" else None,
        scaler=scaler,
        scaler_options=options,
        metric=metric,
        host_options=host,
        objective_options={"aux_epochs": None, **(objective or {})},
    )
    return model.double()


def wake(scaler):
    """Let a generator adjust the scale; it begins at zero, where all tasks are alike."""
    if getattr(scaler, "shared", None) is not None:
        torch.nn.init.normal_(scaler.head.weight, std=0.1)


def train(model, steps=20, *, seed=0, queries=6, tasks=1, **optimizer):
    """Scale after each of a few steps on seeded tasks."""
    steppers = optimizers(model, queries_per_task=queries, **optimizer)
    path = []
    for step in range(steps):
        episode = random_episode(queries=queries, seed=step, tasks=tasks)
        model.loss(episode, index=step * tasks, seed=seed).total.backward()
        for opt in steppers:
            opt.step()
            opt.zero_grad()
        path.append(model.posterior(*model.host.embed(episode)).mean[0].detach().clone())
    return torch.stack(path)


# --- the loss -----------------------------------------------------------------------------------


def test_total_is_the_weighted_sum_of_its_terms():
    model = make(
        "d-svs", family="normal", kl_weight=0.3, objective={"aux_epochs": 4.0, "epoch_length": 10}
    )
    loss = model.loss(random_episode(tasks=3, queries=6), index=9)
    weight = torch.tensor([0.75, 0.5, 0.5], dtype=torch.float64)  # tasks 9, 10, 11
    expected = ((1 - weight) * (loss.nll + 0.3 * loss.kl) + weight * loss.aux).mean() / 6
    torch.testing.assert_close(loss.total, expected)
    assert (loss.kl > 0).all()
    assert (loss.aux > 0).all()


def test_terms_are_what_they_are_called():
    model = make(
        "svs",
        family="normal",
        init=7.0,
        sigma=0.5,
        objective={"aux_epochs": 150.0, "aux_scale": 3.0},
    )
    episode = random_episode(tasks=2, queries=6)
    loss = model.loss(episode, index=0)
    support, query = model.host.embed(episode)
    at_three = host_logits(model.host, support, episode.support_labels, query, 3.0, n_way=3)
    torch.testing.assert_close(loss.aux, vf.query_nll(at_three, episode.query_labels))
    torch.testing.assert_close(loss.nll, vf.query_nll(loss.logits, episode.query_labels))
    expected = vf.gaussian_kl(torch.tensor(7.0).double(), torch.tensor(0.5).double(), 1.0, 1.0)
    torch.testing.assert_close(loss.kl, expected.expand(2))


def test_auxiliary_loss_is_not_computed_once_it_has_faded():
    model = make("svs", objective={"aux_epochs": 2.0, "epoch_length": 1})
    calls = []
    compare = model.host.compare
    model.host.compare = lambda *a: calls.append(1) or compare(*a)
    assert model.loss(random_episode(), index=0).aux.item() > 0
    assert len(calls) == 2
    assert model.loss(random_episode(), index=1).aux.item() == 0
    assert len(calls) == 3


def test_mean_likelihood_weighs_the_kl_more():
    episode = random_episode(queries=6)
    summed = make("d-avs", hidden=3).loss(episode, index=0)
    averaged = make("d-avs", hidden=3, objective={"likelihood": "mean"}).loss(episode, index=0)
    torch.testing.assert_close(summed.total, (summed.nll + summed.kl).mean() / 6)
    torch.testing.assert_close(averaged.total, averaged.nll.mean() / 6 + averaged.kl.mean())


def test_scaler_sees_the_summed_likelihood_unless_told_otherwise():
    summed = make("svs", family="normal")
    averaged = make("svs", family="normal", objective={"likelihood": "mean"})
    assert optimizers(summed, queries_per_task=75)[0].param_groups[0]["lr"] == pytest.approx(75e-4)
    assert optimizers(averaged, queries_per_task=75)[0].param_groups[0]["lr"] == pytest.approx(1e-4)


def test_the_loss_needs_labels():
    episode = random_episode()
    blind = varscale.Episode(episode.support, episode.support_labels, episode.query, None, n_way=3)
    with pytest.raises(ValueError, match="needs the labels of the queries"):
        make("svs").loss(blind, index=0)


def test_negative_samples_and_indices_are_refused():
    model = make("svs")
    with pytest.raises(ValueError, match="samples >= 0, got -1"):
        model(random_episode(), samples=-1)
    with pytest.raises(ValueError, match="Expected an index"):
        model.loss(random_episode(), index=-1)


def test_a_diverged_backbone_is_named():
    model = make("svs", backbone="linear")
    with torch.no_grad():
        model.host.backbone.map.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="weights have diverged"):
        model.loss(random_episode(), index=0)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aux_scale": float("nan")}, "finite aux_scale"),
        ({"likelihood": "median"}, "Unknown likelihood"),
        ({"aux_epochs": 0.0}, "aux_epochs > 0"),
        ({"epoch_length": 0}, "epoch_length >= 1"),
    ],
)
def test_impossible_objectives_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        varscale.Objective(**options)


# --- draws --------------------------------------------------------------------------------------


def test_one_draw_per_task_a_pure_function_of_seed_and_index():
    model = make("d-svs")
    batch = random_episode(tasks=4)
    alpha = model.loss(batch, index=10).alpha
    assert alpha.shape == (4, 5)
    assert len({tuple(a.tolist()) for a in alpha}) == 4
    assert torch.equal(alpha, model.loss(batch, index=10).alpha)
    assert torch.equal(alpha[2:3], model.loss(random_episode(), index=12).alpha)
    assert not torch.equal(alpha, model.loss(batch, index=10, seed=1).alpha)


def test_evaluation_uses_the_mean_or_averages_draws():
    model = make("d-svs", family="normal", init=10.0, sigma=3.0)
    episode = random_episode(tasks=2)
    support, query = model.host.embed(episode)
    at_mean = host_logits(model.host, support, episode.support_labels, query, 10.0, n_way=3)
    torch.testing.assert_close(model(episode), at_mean.log_softmax(-1))
    one, many = model(episode, samples=1), model(episode, samples=20_000)
    assert not torch.allclose(one, model(episode), atol=1e-3)
    draws = 10 + 3 * torch.randn(20_000, 1, 5, generator=torch.Generator().manual_seed(5)).double()
    reference = host_logits(model.host, support, episode.support_labels, query, draws, n_way=3)
    torch.testing.assert_close(many.exp(), reference.softmax(-1).mean(0), rtol=0, atol=0.01)
    torch.testing.assert_close(many.exp().sum(-1), torch.ones(2, 4).double())


def test_predictive_draws_do_not_depend_on_the_batch():
    model = make("d-svs", family="normal", sigma=3.0)
    batch = random_episode(tasks=3)
    last = varscale.Episode(
        batch.support[2:], batch.support_labels[2:], batch.query[2:], None, n_way=3
    )
    torch.testing.assert_close(
        model(batch, samples=4)[2:], model(last, samples=4, index=2), rtol=0, atol=1e-12
    )


# --- reductions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default", "reproduction"])
@pytest.mark.parametrize("scaler", ["svs", "d-svs", "avs", "d-avs"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot", "norm"])
@pytest.mark.parametrize("host", ["pn", "matching"])
def test_a_batch_of_tasks_is_its_tasks_one_by_one(scaler, metric, host, preset):
    torch.manual_seed(0)
    model = varscale.create(
        host,
        backbone="identity",
        backbone_options={"dim": 5},
        scaler=scaler,
        metric=metric,
        preset=preset,
    ).double()
    wake(model.scaler)
    batch = random_episode(tasks=4)
    whole = model.loss(batch, index=3)
    single = []
    for t in range(4):
        episode = varscale.Episode(
            *(
                x[t : t + 1]
                for x in (batch.support, batch.support_labels, batch.query, batch.query_labels)
            ),
            n_way=3,
        )
        single.append(model.loss(episode, index=3 + t))
        torch.testing.assert_close(model(episode), model(batch)[t : t + 1], rtol=0, atol=1e-12)
    mean = torch.stack([loss.total for loss in single]).mean()
    torch.testing.assert_close(whole.total, mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot", "norm"])
def test_a_constant_vector_is_a_scalar(metric):
    episode = random_episode(tasks=2)
    host = make("svs", metric=metric).host
    support, query = host.embed(episode)
    scalar, vector = (
        host_logits(host, support, episode.support_labels, query, alpha, n_way=3)
        for alpha in (7.0, torch.full((5,), 7.0).double())
    )
    torch.testing.assert_close(scalar, vector, rtol=1e-12, atol=1e-12)


def test_half_euclid_and_cosine_have_the_same_svs_trajectory():
    options = {"family": "normal", "lr": 0.01, "learn_sigma": True, "sigma": 1.0}
    cosine = train(make("svs", backbone="linear", **options))
    euclid = train(make("svs", backbone="linear", metric="euclidean", **options))
    whole = train(
        make("svs", backbone="linear", metric="euclidean", host={"kappa": 1.0}, **options)
    )
    torch.testing.assert_close(euclid, cosine, rtol=0, atol=1e-10)
    assert not torch.allclose(whole, cosine, atol=1e-3)
    assert cosine.std() > 0.01  # it moved


@pytest.mark.parametrize(("scaler", "size"), [("svs", 1), ("d-svs", 5)])
def test_no_spread_and_no_kl_is_training_together_by_sgd(scaler, size):
    free = make(scaler, family="normal", sigma=0.0, kl_weight=0.0, lr=0.5)
    together = make("together", size=size)
    path = train(free)
    sgd = {"algorithm": "sgd", "momentum": 0.0, "lr": 0.5 * 6}  # the mean over 6 queries
    torch.testing.assert_close(train(together, **sgd), path, rtol=0, atol=1e-10)
    assert path.std() > 0.01


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_constant_generator_is_dsvs(metric):
    """With only its output bias learned, and the identity as link, D-AVS takes D-SVS's steps."""
    common = {"family": "normal", "sigma": 0.5, "kl_weight": 0.3}
    shared = make("d-svs", metric=metric, init=4.0, lr=0.1, **common)
    options = {"hidden": 3, "mean_link": "identity", **common}
    generated = make("d-avs", metric=metric, prior_mean=1.0, **options)
    head = generated.scaler.head
    with torch.no_grad():
        head.weight.zero_()
        head.bias.fill_(4.0)
    head.weight.requires_grad_(False)
    path = train(shared)
    sgd = {"algorithm": "sgd", "momentum": 0.0, "lr": 0.1 * 6}
    torch.testing.assert_close(train(generated, **sgd), path, rtol=0, atol=1e-10)
    assert path.std() > 0.01


def test_unscaled_is_the_plain_prototypical_network():
    model = varscale.create(backbone="identity", backbone_options={"dim": 5}).double()
    episode = random_episode(tasks=2)
    centres = vf.prototypes(episode.support, episode.support_labels, 3)
    expected = (-torch.cdist(episode.query, centres).square()).log_softmax(-1)
    torch.testing.assert_close(model(episode), expected)
    assert optimizers(model, queries_per_task=4) == []


# --- learning the known answer -------------------------------------------------------------------


def learn(scaler, tasks, steps, **options):
    model = varscale.create(
        backbone="identity",
        backbone_options={"dim": len(tasks.noise)},
        scaler=scaler,
        scaler_options={"family": "normal", "kl_weight": 0.0, "sigma": 0.0, "init": 0.2, **options},
        host_options={"normalize": "none"},
    )
    (optimizer,) = optimizers(model, queries_per_task=tasks.n_way * tasks.n_query)
    average = 0.0
    for step in range(steps):
        model.loss(tasks.batch(16 * step, 16), index=16 * step).total.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= steps // 2:
            average = average + model.scaler.loc.detach() / (steps - steps // 2)
    return average


@pytest.mark.parametrize("n_shot", [1, 3])
def test_svs_finds_the_best_scale_of_gaussian_classes(n_shot):
    tasks = GaussianTasks(
        spread=torch.full((2,), 12.0),
        noise=torch.ones(2),
        n_way=60,
        n_shot=n_shot,
        n_query=1,
    )
    alpha = learn("svs", tasks, steps=200, lr=1e-3)
    assert alpha.item() == pytest.approx(tasks.best_alpha[0].item(), rel=0.02)


def test_dsvs_finds_the_best_scale_of_every_dimension():
    noise = torch.tensor([0.7, 1.4])
    tasks = GaussianTasks(spread=12 * noise, noise=noise, n_way=60, n_query=1)
    alpha = learn("d-svs", tasks, steps=160, lr=2e-3)
    torch.testing.assert_close(alpha, tasks.best_alpha, rtol=0.03, atol=0)


@pytest.mark.parametrize("host", ["pn", "matching"])
@pytest.mark.parametrize("labels", [[[0, 2, 0, 1]], [[0, 1, 0, -1]], [[0, 0, 0, 0]]])
def test_wrong_labels_of_embedded_tasks_are_refused(host, labels, as_user):
    """Beside a second task: a label outside would count in that one."""
    model = varscale.create(host, backbone="identity", backbone_options={"dim": 4}, scaler="svs")
    x, labels = torch.randn(2, 4, 4), torch.tensor([*labels, [0, 1, 0, 1]])
    with pytest.raises(ValueError, match="Expected"):
        model.predict(x, labels, x, n_way=2)


def test_embeddings_whose_squares_overflow_are_refused(as_user):
    model = varscale.create(backbone="identity", backbone_options={"dim": 4}, metric="cosine")
    x, labels = 1e20 * torch.ones(1, 2, 4), torch.tensor([[0, 1]])
    with pytest.raises(ValueError, match=r"Expected embeddings below 1e\+18.*got 1e\+20"):
        model(varscale.Episode(x, labels, x, None, n_way=2))
    x = x.double()
    assert model.double()(varscale.Episode(x, labels, x, None, n_way=2)).isfinite().all()


def test_a_half_precision_trunk_does_not_round_what_follows_it():
    class Mixed(torch.nn.Module):
        out_dim = 3

        def __init__(self):
            super().__init__()
            self.trunk = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
            self.last = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.last(self.trunk(x).float())

    model = varscale.create(backbone=Mixed(), scaler="svs")
    assert model.host.embed_items(torch.randn(1, 2, 4)).dtype == torch.float32
