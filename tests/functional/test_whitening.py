"""The map of embeddings before the cosine, and what its origin does to the scale."""

import pytest
import torch

from varscale.functional import Whitening, origin_factor


def test_a_class_of_many_items_does_not_pull_the_origin(generator):
    counts = torch.tensor([100, 2, 3])
    labels = torch.arange(3).repeat_interleave(counts)
    x = torch.randn(105, 4, generator=generator, dtype=torch.float64)
    means = torch.stack([x[labels == k].mean(0) for k in range(3)])
    torch.testing.assert_close(Whitening.learn(x, labels).mean, means.mean(0))
    assert not Whitening.learn(x, labels, center=False).mean.any()


@pytest.mark.parametrize("n_classes", [2, 5, 20])
def test_the_scale_goes_with_lengths_about_the_origin(generator, n_classes):
    """M31: half of the variance of an item lies between classes, as the exponent assumes."""
    shape = (400, n_classes, 100)  # draw, class, dimension
    own, foreign, noise = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    for is_own, classes in ((True, own), (False, foreign)):
        origin = classes.mean(1, keepdim=True)
        length = [(x - origin).square().mean().sqrt() for x in (own, own + noise)]
        found = length[0] * length[1] / 2**0.5  # 1 and the root of 2 about the mean of all
        assert found.item() == pytest.approx(origin_factor(n_classes, own=is_own), rel=0.04)


def test_of_very_many_classes_the_origin_is_that_of_all():
    assert origin_factor(1e6, own=True) == pytest.approx(1, abs=1e-5)
    assert origin_factor(1e6, own=False) == pytest.approx(1, abs=1e-5)
