"""The map of embeddings before the cosine."""

import pytest
import torch

from varscale.functional import Whitening, effective_dimensions, within_covariance


def test_a_class_of_many_items_does_not_pull_the_origin(generator):
    counts = torch.tensor([100, 2, 3])
    labels = torch.arange(3).repeat_interleave(counts)
    x = torch.randn(105, 4, generator=generator, dtype=torch.float64)
    means = torch.stack([x[labels == k].mean(0) for k in range(3)])
    torch.testing.assert_close(Whitening.learn(x, labels).mean, means.mean(0))
    assert Whitening.learn(x, labels).matrix is None


@pytest.mark.parametrize("shrinkage", [0.0, 0.4, 0.9, 1.0])
def test_the_shrunk_covariance_becomes_round(generator, shrinkage):
    labels = torch.arange(5).repeat_interleave(20)
    x = torch.randn(100, 4, generator=generator, dtype=torch.float64)
    x = x @ torch.randn(4, 4, generator=generator, dtype=torch.float64) + 3 * labels[:, None]
    learned = Whitening.learn(x, labels, shrinkage=shrinkage)
    covariance = within_covariance(x, labels)
    size = covariance.trace() / 4
    shrunk = (1 - shrinkage) * covariance + shrinkage * size * torch.eye(4).double()
    torch.testing.assert_close(
        learned.matrix.mT @ shrunk @ learned.matrix, size * torch.eye(4).double()
    )
    torch.testing.assert_close(learned(x), (x - learned.mean) @ learned.matrix)


@pytest.mark.parametrize("sizes", [[1.0] * 6, [3.0, 1.0, 1.0, 0.1, 0.1, 0.1], [1.0] + 5 * [0.0]])
def test_the_dimensions_that_noise_fills(generator, sizes):
    labels = torch.arange(20).repeat_interleave(50)
    variances = torch.tensor(sizes).double()
    noise = torch.randn(1000, 6, generator=generator, dtype=torch.float64) * variances.sqrt()
    expected = variances.sum() ** 2 / variances.square().sum()
    assert effective_dimensions(noise, labels) == pytest.approx(expected.item(), rel=0.1)


def test_no_noise_fills_one_dimension():
    labels = torch.arange(3).repeat_interleave(2)
    assert effective_dimensions(torch.zeros(6, 4).double(), labels) == 1
    assert effective_dimensions(torch.eye(6).double(), labels) == 6  # never more than there are
