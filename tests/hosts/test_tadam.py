import pytest
import torch
import torch.nn.functional as F
from conftest import host_logits, random_episode
from torch import nn

import varscale
from varscale.backbones import Conv4, ResNet12
from varscale.functional import log_softmax
from varscale.hosts import Tadam
from varscale.learn import optimizers

ITEM = (1, 8, 8)


def backbone():
    return ResNet12(in_channels=1, image_size=8, width=1 / 16)


def adapted(scaler=None, **options):
    """A model whose condition does something, and whose batch norms have seen items.

    In double precision: twelve layers multiply what single precision rounds away.
    """
    torch.manual_seed(0)
    model = varscale.create("tadam", backbone=backbone(), scaler=scaler, **options)
    for name, parameter in model.named_parameters():
        if name.endswith("post_multiplier"):
            nn.init.uniform_(parameter, -1, 1)
    for _ in range(100):
        model.host.backbone(torch.randn(20, *ITEM))
    return model.double()


def episode_of(dtype=torch.float64):
    return random_episode(tasks=3, item=ITEM, queries=5, dtype=dtype)


def test_it_starts_unconditioned():
    """Identical embeddings, and only the post-multipliers feel the task."""
    torch.manual_seed(0)
    model = varscale.create("tadam", backbone=backbone())
    episode = episode_of(torch.float32)
    model.eval()
    support, query = model.host.embed(episode)
    assert torch.equal(support, model.host.embed_items(episode.support))
    assert torch.equal(query, model.host.embed_items(episode.query))

    model.train().loss(episode, index=0).total.backward()
    for name, parameter in model.host.named_parameters():
        if not name.startswith("backbone."):
            felt = bool(parameter.grad.abs().sum() > 0)
            assert felt == name.endswith("post_multiplier"), name


def test_then_the_condition_matters():
    model, episode = adapted().eval(), episode_of()
    _, query = model.host.embed(episode)
    assert not torch.allclose(query, model.host.embed_items(episode.query), atol=1e-2)
    moved = varscale.Episode(
        episode.support + 1.0, episode.support_labels, episode.query, None, n_way=3
    )
    assert not torch.allclose(query, model.host.embed(moved)[1], atol=1e-3)


@pytest.mark.parametrize("scaler", [None, "d-svs", "d-avs"])
def test_a_task_of_a_batch_is_as_alone(scaler):
    options = {"init": 10.0} if scaler == "d-svs" else None
    model, episode = adapted(scaler, scaler_options=options).eval(), episode_of()
    together = model(episode)
    for t in range(3):
        alone = varscale.Episode(
            episode.support[t : t + 1],
            episode.support_labels[t : t + 1],
            episode.query[t : t + 1],
            None,
            n_way=3,
        )
        torch.testing.assert_close(together[t], model(alone)[0], rtol=0, atol=1e-10)


def by_hand(host, episode, t, scale):
    """One task by sections 3.2 and 3.3, one network and one class after the other."""

    def network(ten, task):
        w = ten.state_dict()
        x = F.silu(w["layers.0.weight"] @ task + w["layers.0.bias"])
        x = F.silu(w["layers.1.weight"] @ x + w["layers.1.bias"] + x)
        x = w["layers.2.weight"] @ x + w["layers.2.bias"] + x
        return (w["post_multiplier"] * x).unsqueeze(0)

    labels = episode.support_labels[t]

    def centres(embedded):
        return torch.stack([embedded[labels == k].mean(0) for k in range(3)])

    task = centres(host.backbone(episode.support[t])).mean(0)
    condition = [
        (network(g, task), network(b, task)) for g, b in zip(host.gammas, host.betas, strict=True)
    ]
    c = centres(host.backbone(episode.support[t], condition))
    query = host.backbone(episode.query[t], condition)
    return torch.stack([-scale * (query - c[k]).norm(dim=-1) for k in range(3)], dim=-1)


def test_logits_by_hand():
    """Unequal shots (2, 1, 3): the task is the mean of its classes, not of its supports."""
    model, episode = adapted().eval(), episode_of()
    assert float(model.scaler.loc) == 7.5
    for t in range(3):
        expected = log_softmax(by_hand(model.host, episode, t, 7.5))
        torch.testing.assert_close(model(episode)[t], expected, rtol=0, atol=1e-10)


def test_with_a_scaler_it_is_a_scaled_prototypical_network_on_conditioned_embeddings():
    model, episode = adapted("d-svs").eval(), episode_of()
    host = model.host
    assert (host.metric, host.normalize, host.kappa) == ("euclidean", "prototype", 0.5)
    alpha = torch.linspace(1, 50, host.out_dim, dtype=torch.float64)
    support, query = host.embed(episode)
    centres = varscale.functional.prototypes(support, episode.support_labels, 3)
    difference = F.normalize(query, dim=-1)[:, :, None] - F.normalize(centres, dim=-1)[:, None]
    torch.testing.assert_close(
        log_softmax(host_logits(host, support, episode.support_labels, query, alpha, n_way=3)),
        log_softmax(-0.5 * (alpha * difference.square()).sum(-1)),
        rtol=0,
        atol=1e-10,
    )


def test_other_readings():
    squared = adapted(metric="euclidean")
    assert (squared.host.normalize, squared.host.kappa) == ("none", 1.0)
    assert float(squared.scaler.loc) == 7.5
    learned = adapted("together", metric="norm", scaler_options={"init": 7.5})
    assert learned.host.normalize == "none"
    learned.loss(episode_of(), index=0).total.backward()
    assert learned.scaler.loc.grad.abs() > 0
    joint = adapted(host_options={"bn_pass": "joint"})
    assert joint.eval()(episode_of()).shape == (3, 5, 3)
    torch.testing.assert_close(joint(episode_of()), adapted().eval()(episode_of()))


def test_the_task_representation_learns_too():
    """No stop-gradient: what the condition does reaches the unconditioned supports."""
    model, episode = adapted(), episode_of()
    episode.support.requires_grad_()
    plain = model.host.embed_items(episode.support)
    task = varscale.functional.prototypes(plain, episode.support_labels, 3).mean(-2)
    gamma, beta = model.host.condition(task)[0]
    (found,) = torch.autograd.grad((gamma + beta).sum(), episode.support)
    assert found.abs().sum() > 0

    seen = []
    condition = model.host.condition

    def note(task):
        seen.append(task.requires_grad)
        return condition(task)

    model.host.condition = note
    model.loss(episode_of(), index=0)
    assert seen == [True]


def test_task_embedding_networks_start_as_published():
    torch.manual_seed(0)
    for network in Tadam(ResNet12()).gammas[::4]:
        for layer in network.layers:
            std = (0.2 / layer.out_features) ** 0.5
            assert layer.weight.std().item() == pytest.approx(std, rel=0.05)
            assert (layer.bias == 0).all()
        assert network.post_multiplier.item() == 0


def test_penalty():
    model = adapted()
    multipliers = [p for n, p in model.named_parameters() if n.endswith("post_multiplier")]
    assert len(multipliers) == 24
    loss = model.loss(episode_of(), index=0)
    expected = 0.01 * 0.5 * sum(p.item() ** 2 for p in multipliers)
    assert loss.penalty.item() == pytest.approx(expected)
    assert loss.total.item() == pytest.approx(expected + loss.nll.mean().item() / 5)
    model.host.penalty().backward()
    assert multipliers[5].grad.item() == pytest.approx(0.01 * multipliers[5].item())


def test_only_matrices_decay():
    (weights,) = optimizers(adapted(), queries_per_task=5, algorithm="sgd", weight_decay=5e-4)
    decaying, rest = weights.param_groups
    assert (decaying["weight_decay"], rest["weight_decay"]) == (5e-4, 0)
    assert {p.ndim for p in decaying["params"]} == {2, 4}
    assert {p.ndim for p in rest["params"]} == {0, 1}
    assert len(decaying["params"]) == 16 + 72


def test_a_backbone_without_places_is_refused(as_user):
    with pytest.raises(ValueError, match="got Conv4 without film_channels. Use resnet12"):
        Tadam(Conv4(image_size=16))
    with pytest.raises(ValueError, match="Expected penalty_weight >= 0, got -1"):
        Tadam(backbone(), penalty_weight=-1)
