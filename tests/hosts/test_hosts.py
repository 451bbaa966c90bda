import pytest
import torch
from conftest import host_logits, random_episode
from torch import nn

import varscale
from varscale import functional as vf
from varscale.backbones import Identity, Tiny
from varscale.hosts import MatchingNetwork, PrototypicalNetwork


def logits(host, episode, alpha=10.0):
    support, query = host.embed(episode)
    return host_logits(host, support, episode.support_labels, query, alpha, n_way=episode.n_way)


def test_normalisation_orders_differ_as_documented():
    episode = random_episode(shots=(2, 3, 1), queries=4)
    x, y, query = episode.support, episode.support_labels, vf.normalize(episode.query)
    raw_mean, unit_mean = vf.prototypes(x, y, 3), vf.prototypes(vf.normalize(x), y, 3)
    expected = {
        "prototype": vf.dot_logits(query, vf.normalize(raw_mean), 10.0),
        "each_then_mean": vf.dot_logits(query, unit_mean, 10.0),
        "each_then_mean_unit": vf.dot_logits(query, vf.normalize(unit_mean), 10.0),
    }
    for order, value in expected.items():
        host = PrototypicalNetwork(Identity(5), metric="cosine", normalize=order)
        torch.testing.assert_close(logits(host, episode), value)
    plain = PrototypicalNetwork(Identity(5), metric="euclidean", normalize="none", kappa=1.0)
    torch.testing.assert_close(
        logits(plain, episode).log_softmax(-1),
        (-10 * torch.cdist(episode.query, raw_mean).square()).log_softmax(-1),
    )


def test_orders_agree_at_one_shot():
    episode = random_episode(shots=(1, 1, 1))
    first, *others = (
        logits(PrototypicalNetwork(Identity(5), metric="cosine", normalize=order), episode)
        for order in ("prototype", "each_then_mean", "each_then_mean_unit")
    )
    for other in others:
        torch.testing.assert_close(other, first)


@pytest.mark.parametrize("alpha", [10.0, torch.tensor([1.0, 5.0, 2.0, 9.0, 0.5]).double()])
def test_matching_equals_cosine_prototypes_at_one_shot(alpha):
    episode = random_episode(tasks=2, shots=(1, 1, 1))
    matching = logits(MatchingNetwork(Identity(5)), episode, alpha)
    pn = logits(PrototypicalNetwork(Identity(5), metric="cosine"), episode, alpha)
    torch.testing.assert_close(matching.log_softmax(-1), pn.log_softmax(-1), rtol=0, atol=1e-12)


def test_matching_differs_from_prototypes_at_several_shots():
    episode = random_episode(shots=(3, 2, 2))
    matching = logits(MatchingNetwork(Identity(5)), episode).log_softmax(-1)
    pn = logits(PrototypicalNetwork(Identity(5), metric="cosine"), episode).log_softmax(-1)
    assert not torch.allclose(matching, pn, atol=1e-2)


def test_norm_metric_is_tadams():
    episode = random_episode()
    host = PrototypicalNetwork(Identity(5), metric="norm")
    assert host.normalize == "none"
    centres = vf.prototypes(episode.support, episode.support_labels, 3)
    torch.testing.assert_close(
        logits(host, episode, 7.5), -7.5 * torch.cdist(episode.query, centres)
    )


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_legacy_gradient_omits_kappa_in_euclidean_runs_only(metric):
    episode = random_episode()
    gradients = []
    for legacy in (False, True):
        host = PrototypicalNetwork(Identity(5), metric=metric, legacy_alpha_grad=legacy)
        alpha = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
        value = logits(host, episode, alpha)
        vf.query_nll(value, episode.query_labels).sum().backward()
        gradients.append(alpha.grad.item())
    assert gradients[1] == pytest.approx(gradients[0] * (2 if metric == "euclidean" else 1))


@pytest.mark.parametrize("bn_pass", ["separate", "joint"])
def test_one_or_two_passes_of_batch_norm(bn_pass):
    torch.manual_seed(0)
    backbone = Tiny().double()
    host = PrototypicalNetwork(backbone, bn_pass=bn_pass)
    episode = random_episode(tasks=2, item=(1, 8, 8))
    seen = []
    backbone.register_forward_hook(lambda _m, inputs, _o: seen.append(len(inputs[0])))
    support, query = host.embed(episode)
    assert seen == ([12, 8] if bn_pass == "separate" else [20])
    assert support.shape == (2, 6, 16)
    assert query.shape == (2, 4, 16)
    host.eval()
    evaluated = host.embed(episode)
    other = PrototypicalNetwork(backbone, bn_pass="separate").eval().embed(episode)
    torch.testing.assert_close(evaluated, other)  # no difference without batch statistics


def test_empty_query_sets():
    episode = random_episode(tasks=2, queries=0, item=(1, 8, 8))
    for name in ("pn", "matching"):
        model = varscale.create(name, backbone="tiny", scaler="svs").double()
        assert model(episode).shape == (2, 0, 3)
        loss = model.loss(episode, index=0)
        assert loss.nll.tolist() == [0.0, 0.0]
        assert loss.total.isfinite()


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "euclid"}, "Unknown metric 'euclid'.*Did you mean 'euclidean'"),
        ({"bn_pass": "both"}, "Unknown bn_pass"),
        ({"normalize": "each"}, "Unknown normalize"),
        ({"kappa": 0.0}, "kappa > 0"),
        ({"metric": "cosine", "normalize": "none"}, 'use metric="dot"'),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PrototypicalNetwork(Identity(5), **options)


def test_a_backbone_must_know_its_size():
    with pytest.raises(ValueError, match=r"integer out_dim.*got Linear with None"):
        PrototypicalNetwork(nn.Linear(5, 5))


def test_items_are_checked_and_brought_to_the_backbones_type():
    host = PrototypicalNetwork(Tiny())
    support, _ = host.embed(random_episode(item=(1, 8, 8), dtype=torch.float64))
    assert support.dtype == torch.float32
    with pytest.raises(ValueError, match=r"items of shape \(1, 8, 8\).*got \(8, 8, 1\)"):
        host.embed(random_episode(item=(8, 8, 1)))


def test_a_backbone_that_breaks_its_word():
    backbone = nn.Linear(5, 4)
    backbone.out_dim = 8
    with pytest.raises(ValueError, match=r"shape \(6, 8\) from the backbone, got \(6, 4\)"):
        PrototypicalNetwork(backbone).embed(random_episode())


def test_matching_refuses_an_unnormalised_cosine():
    with pytest.raises(ValueError, match='use metric="dot"'):
        MatchingNetwork(Identity(5), normalize="none")
