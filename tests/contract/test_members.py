"""What every registered member promises. To be registered is to be tested."""

import pytest
import torch
from conftest import random_episode
from safetensors.torch import load, save

import varscale
from varscale.backbones import BACKBONES
from varscale.hosts import HOSTS
from varscale.learn import optimizers
from varscale.scalers import SCALERS

IMAGES = {
    "conv4": {"image_size": 16, "filters": 4},
    "tiny": {},
    "resnet12": {"in_channels": 1, "image_size": 8, "width": 1 / 16},
}


def backbone_options(name):
    return IMAGES.get(name, {"dim": 6} if "dim" in BACKBONES.options(name) else {})


def build(host="pn", scaler="svs", backbone=None):
    torch.manual_seed(0)
    backbone = backbone or ("resnet12" if HOSTS[host].conditioned else "tiny")
    model = varscale.create(
        host,
        backbone=backbone,
        backbone_options=backbone_options(backbone),
        scaler=scaler,
        scaler_options={"sigma": "generated", "hidden": 8} if scaler in ("avs", "d-avs") else None,
    )
    for name, parameter in model.named_parameters():
        if name.endswith("post_multiplier"):  # it starts at 0, and then nothing before it learns
            torch.nn.init.constant_(parameter, 0.3)
    return model


def episode_for(model):
    return random_episode(
        tasks=2, item=model.host.backbone.in_shape, dtype=torch.float32, queries=6
    )


PAIRS = [(host, scaler) for host in HOSTS for scaler in SCALERS]


@pytest.mark.parametrize(("host", "scaler"), PAIRS)
def test_loss_and_gradient_reach_every_parameter(host, scaler):
    model = build(host, scaler)
    loss = model.loss(episode_for(model), index=0)
    loss.total.backward()
    assert loss.logits.shape == (2, 6, 3)
    assert loss.alpha.shape == (2, model.scaler.size)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        if not name.startswith("host.backbone.convs") or not name.endswith("bias"):
            assert parameter.grad.abs().sum() > 0, name  # batch norm cancels a bias before it


@pytest.mark.parametrize(("host", "scaler"), PAIRS)
def test_every_parameter_is_learned_exactly_once(host, scaler):
    model = build(host, scaler)
    learned = [
        id(p)
        for optimizer in optimizers(model, queries_per_task=6)
        for group in optimizer.param_groups
        for p in group["params"]
    ]
    assert sorted(learned) == sorted(id(p) for p in model.parameters())


@pytest.mark.parametrize(("host", "scaler"), PAIRS)
def test_predictions_are_distributions(host, scaler):
    model = build(host, scaler).eval()
    for samples in (0, 3):
        p = model(episode_for(model), samples=samples).exp()
        assert p.shape == (2, 6, 3)
        torch.testing.assert_close(p.sum(-1), torch.ones(2, 6))


@pytest.mark.parametrize(("host", "scaler"), PAIRS)
def test_save_and_load(host, scaler):
    model = build(host, scaler)
    episode = episode_for(model)
    steppers = optimizers(model, queries_per_task=6)
    model.loss(episode, index=0).total.backward()
    for optimizer in steppers:
        optimizer.step()
    state = load(save({k: v.contiguous() for k, v in model.state_dict().items()}))
    torch.manual_seed(1)
    twin = build(host, scaler)
    twin.load_state_dict(state)
    assert torch.equal(twin.eval()(episode), model.eval()(episode))


@pytest.mark.parametrize(("host", "scaler"), PAIRS)
def test_bfloat16_ends_with_the_embedding(host, scaler):
    """Scale, prior, logits and loss are those of float32, bit for bit, at the same embeddings."""
    model = build(host, scaler).eval()
    episode = episode_for(model)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            embeddings = model.host.embed(episode)
            mixed, log_p = model.loss(episode, index=0), model(episode)
        plain = model.host.embed(episode)
        model.host.embed = lambda _: embeddings
        again, log_p_again = model.loss(episode, index=0), model(episode)
    assert not torch.equal(embeddings[1], plain[1])  # it was in bfloat16
    for name in ("total", "nll", "kl", "aux", "logits", "alpha"):
        value = getattr(mixed, name)
        assert value.dtype == torch.float32, name
        assert torch.equal(value, getattr(again, name)), name
    assert torch.equal(mixed.q.mean, again.q.mean)
    assert torch.equal(log_p, log_p_again)


@pytest.mark.parametrize("name", SCALERS)
def test_scalers(name):
    model = build(scaler=name)
    scaler = model.scaler
    task = torch.rand(2, 3, model.host.out_dim)
    q = scaler(task)
    assert q.batch_shape == (2, 3, scaler.size)
    assert scaler.size in (1, model.host.out_dim)
    assert q.mean.isfinite().all()
    assert (q.stddev >= 0).all()
    assert scaler.local == bool((q.mean != q.mean[0, 0]).any())  # does q depend on the task?
    assert scaler.kl(q).shape == (2, 3)
    assert (scaler.kl(q) >= -1e-4).all()
    noise = torch.zeros(7, 2, 3, scaler.size)
    median = q.icdf(torch.full_like(q.mean, 0.5))
    torch.testing.assert_close(scaler.sample(q, noise), median.expand(7, 2, 3, -1))
    assert repr(scaler).startswith(type(scaler).__name__)
    for dtype in (torch.float16, torch.float64):
        assert scaler(task.to(dtype)).mean.isfinite().all()


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones(name):
    torch.manual_seed(0)
    backbone = BACKBONES.create(name, **backbone_options(name))
    items = torch.rand(3, *backbone.in_shape)
    out = backbone(items)
    assert out.shape == (3, backbone.out_dim)
    assert type(backbone).__name__ in repr(backbone)
    model = build(backbone=name)
    loss = model.loss(episode_for(model), index=0)
    loss.total.backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("registry", [HOSTS, SCALERS, BACKBONES], ids=lambda r: r.kind)
def test_every_member_says_what_it_is(registry):
    for name in registry:
        assert registry[name].__doc__.partition("\n")[0].rstrip().endswith((".", ":")), name
