import pytest
import torch
from torch import nn

from varscale.backbones import Conv4, Identity, Linear


def textbook(fast):
    """Conv-4 as everybody writes it, with the weights of ours."""
    layers = []
    for conv, norm in zip(fast.convs, fast.norms, strict=True):
        plain = nn.Conv2d(conv.in_channels, conv.out_channels, 3, padding=1)
        plain.load_state_dict(conv.state_dict())
        batch_norm = nn.BatchNorm2d(conv.out_channels)
        batch_norm.load_state_dict(norm.state_dict())
        layers += [plain, batch_norm, nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten()).double()


@pytest.mark.parametrize("training", [True, False])
def test_fast_form_equals_the_textbook(training):
    torch.manual_seed(0)
    fast = Conv4(image_size=20, filters=8).double()
    for norm in fast.norms:
        norm.weight.data -= 0.5  # negative weights too
    plain = textbook(fast)
    fast.train(training)
    plain.train(training)
    images = torch.rand(6, 3, 20, 20, dtype=torch.float64)
    ours, theirs = fast(images), plain(images)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    weight = torch.randn_like(ours)
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    for a, b in zip(fast.parameters(), interleave(plain, fast), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-10)


def interleave(plain, fast):
    """Parameters of the textbook form in the order of ours: convolutions first."""
    convs = [m for m in plain if isinstance(m, nn.Conv2d)]
    norms = [m for m in plain if isinstance(m, nn.BatchNorm2d)]
    return [p for module in convs + norms for p in module.parameters()]


def test_batch_norm_starts():
    torch.manual_seed(0)
    uniform = torch.cat([norm.weight for norm in Conv4().norms])
    assert 0 < uniform.min() < 0.05
    assert 0.95 < uniform.max() < 1
    assert all((norm.weight == 1).all() for norm in Conv4(bn_init="ones").norms)


def test_weights_and_activations_are_channels_last():
    model = Conv4(image_size=16)
    assert model.convs[1].weight.is_contiguous(memory_format=torch.channels_last)


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="at least 16 pixels for 4 poolings, got image_size=15"):
        Conv4(image_size=15)


@pytest.mark.usefixtures("as_user")
def test_unknown_start_is_refused():
    with pytest.raises(ValueError, match=r"Unknown bn_init 'one'.*Did you mean 'ones'"):
        Conv4(bn_init="one")


def test_linear_starts_at_the_identity():
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Linear(6)(x), x)
    assert torch.equal(Linear(6, out_dim=2, bias=True)(x), x[:, :2])
    assert Identity(6)(x) is x
    assert Linear(6)(x.half()).dtype == torch.float32
