import pytest
import torch

from varscale.backbones import Conv4, ResNet12
from varscale.paper.cost import flop, minutes, multiply_adds
from varscale.paper.grid import config_of
from varscale.paper.sizes import SIZES, resize


@pytest.mark.parametrize(
    ("backbone", "published"),
    [
        (Conv4(), 97.2e6),
        (Conv4(image_size=32), 14.2e6),
        (Conv4(image_size=28, in_channels=1), 9.8e6),
        (ResNet12(image_size=32), 0.367e9),
        (ResNet12(image_size=32, width=0.25), 23.3e6),
    ],
    ids=str,
)
def test_published_multiply_adds(backbone, published):
    assert multiply_adds(backbone) == pytest.approx(published, rel=5e-3)
    assert backbone.training
    assert all(not m._forward_hooks for m in backbone.modules())
    assert isinstance(backbone(torch.zeros(2, *backbone.in_shape)), torch.Tensor)


def test_a_run_of_the_paper():
    config = config_of("pn_cosine_5w1s")
    trained = 3 * 20_000 * 80  # 5 supports and 75 queries
    images = trained + 200 * 9_600 + 12_000
    expected = 2 * multiply_adds(Conv4()) * images
    assert flop(config, SIZES["paper"]) == pytest.approx(expected)
    assert minutes(config, SIZES["paper"], 1000) == pytest.approx(
        (expected / 1e12 + 20_000 * 1.5e-3) / 60
    )
    tadam = config_of("tadam_5w5s")
    steps = 3 * 30_000 * (2 * (50 + 32) + 64 * 0.3953)
    evaluated = 60 * 200 * 82 + 10_000 * 82
    assert flop(tadam, SIZES["paper"]) == pytest.approx(2 * 2.59e9 * (steps + evaluated), rel=3e-3)
    assert flop(resize(config, "frozen"), SIZES["frozen"]) == 0
