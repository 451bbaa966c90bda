import pytest
import torch
import torch.nn.functional as F
from torch import nn

from varscale.backbones import ResNet12


def small(**options):
    torch.manual_seed(0)
    network = ResNet12(image_size=20, width=1 / 16, **options).double()
    for norm in (m for m in network.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, -1, 1)
        nn.init.uniform_(norm.bias, -1, 1)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    return network


def textbook(network, images, condition=None, *, act=F.silu, pools=3):
    """The network as section 3.1 has it, task by task, from its named weights alone."""
    w = dict(network.state_dict())

    def norm(x, name):
        return F.batch_norm(
            x,
            *(w[f"{name}.{part}"].clone() for part in ("running_mean", "running_var")),
            w[f"{name}.weight"],
            w[f"{name}.bias"],
            training=network.training,
            eps=1e-3,
        )

    x = images
    for b in range(4):
        name = f"blocks.{b}"
        shortcut = norm(F.conv2d(x, w[f"{name}.shortcut.0.weight"]), f"{name}.shortcut.1")
        for c in range(3):
            x = norm(F.conv2d(x, w[f"{name}.convs.{c}.weight"], padding=1), f"{name}.norms.{c}")
            if condition:
                gamma, beta = condition[3 * b + c]
                parts = x.chunk(len(gamma))
                x = torch.cat(
                    [
                        part * (1 + g)[:, None, None] + s[:, None, None]
                        for part, g, s in zip(parts, gamma, beta, strict=True)
                    ]
                )
            x = act(x) if c < 2 else x
        x = act(x + shortcut)
        if b < pools:
            odd = (0, x.shape[-1] % 2, 0, x.shape[-2] % 2)  # SAME: padding with what never wins
            x = F.max_pool2d(F.pad(x, odd, value=-torch.inf), 2)
    return x.mean((2, 3))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("conditioned", [True, False])
@pytest.mark.parametrize(
    ("options", "other"),
    [({}, {}), ({"activation": "relu", "pools": 4}, {"act": F.relu, "pools": 4})],
)
def test_it_equals_the_textbook(training, conditioned, options, other):
    network = small(**options).train(training)
    images = torch.rand(6, 3, 20, 20, dtype=torch.float64)
    condition = [torch.randn(2, 2, n).double().unbind() for n in network.film_channels]
    condition = condition if conditioned else None
    expected = textbook(network, images, condition, **other)
    torch.testing.assert_close(network(images, condition), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("pools", "ends"), [(3, [42, 21, 11, 11]), (4, [42, 21, 11, 6])])
def test_pooled_sizes_and_multiply_adds(pools, ends):
    """The published ones; measured as the network runs, not computed from its description."""
    network = ResNet12(pools=pools).eval()
    multiply_adds, seen, pooled = [], [], []

    def note(conv, inputs, output):
        seen.append(output.shape[-1])
        multiply_adds.append(output[0].numel() * conv.in_channels * conv.kernel_size[0] ** 2)

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(note)
    for block in network.blocks:
        block.register_forward_hook(lambda *call: pooled.append(call[-1].shape[-1]))
    with torch.inference_mode():
        assert network(torch.rand(1, 3, 84, 84)).shape == (1, 512)
    assert sum(multiply_adds) == pytest.approx(2.59e9, rel=2e-3)
    assert seen == [side for side in (84, 42, 21, 11) for _ in range(4)]
    assert pooled == ends


def test_a_quarter_of_the_width():
    quarter = ResNet12(image_size=32, width=0.25)
    assert sum(p.numel() for p in quarter.parameters()) == 501_600
    assert quarter.film_channels == (16,) * 3 + (32,) * 3 + (64,) * 3 + (128,) * 3


def test_it_starts_as_published():
    torch.manual_seed(0)
    for module in ResNet12(image_size=8).modules():
        if isinstance(module, nn.Conv2d):
            outputs = module.kernel_size[0] ** 2 * module.out_channels
            assert module.bias is None
            assert module.weight.std().item() == pytest.approx((0.2 / outputs) ** 0.5, rel=0.15)
        if isinstance(module, nn.BatchNorm2d):
            assert (module.eps, module.momentum) == (1e-3, 0.05)
            assert (module.weight == 1).all()


def test_pixel_range_multiplies_the_pixels():
    images = torch.rand(4, 3, 20, 20, dtype=torch.float64)
    assert torch.equal(small(pixel_range=255)(images), small()(255 * images))
    assert not torch.allclose(small()(images), small()(255 * images), atol=1e-3)  # eps shows


def test_channels_last():
    network = small()
    assert network.blocks[1].convs[1].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0.001}, "at least 1/64, got 0.001"),
        ({"width": float("inf")}, "at least 1/64, got inf"),
        ({"image_size": 0}, "one pixel, got in_channels=3, image_size=0"),
        ({"pools": 5}, "Expected 0 to 4 pools, got 5"),
        ({"activation": "swish"}, "Unknown activation 'swish'; known: relu, silu"),
        ({"pixel_range": 0.0}, "Expected pixel_range > 0, got 0.0"),
    ],
)
def test_impossible_settings_are_refused(options, message, as_user):
    with pytest.raises(ValueError, match=message):
        ResNet12(**options)


def test_a_condition_of_another_network_is_refused():
    network = small()
    condition = [torch.zeros(2, 1, n).double().unbind() for n in network.film_channels]
    with pytest.raises(ValueError, match="a condition of 12 pairs, got 11"):
        network(torch.rand(2, 3, 20, 20, dtype=torch.float64), condition[:-1])
