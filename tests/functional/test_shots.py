"""Scores of classes with different numbers of supports (M49)."""

import math

import pytest
import torch

from varscale.functional import (
    normalize,
    own_similarity,
    shot_bias,
    shot_factor,
    shot_scores,
    temper,
)


@pytest.fixture
def task(generator):
    count = torch.tensor([[1.0, 2.0, 7.0], [5.0, 5.0, 1.0]], dtype=torch.float64).unsqueeze(-2)
    scatter = torch.tensor([0.6, 3.0], dtype=torch.float64)
    share = torch.tensor([0.0, 0.3], dtype=torch.float64)
    return torch.rand(2, 4, 3, generator=generator, dtype=torch.float64), count, 0.4, scatter, share


def test_plain_loops(task):
    cosine, count, offset, scatter, share = task
    found = shot_scores(cosine, count, offset, scatter, share)
    for t in range(2):
        for j in range(4):
            row = cosine[t, j].tolist()
            for k, n in enumerate(count[t, 0].tolist()):
                b = scatter[t].item()
                even = (0.5 - share[t].item() * b / n) / math.sqrt((1 + b) * (1 + b / n))
                expected = n / (n + offset) * (row[k] - sum(row) / 3 - even)
                assert found[t, j, k].item() == pytest.approx(expected, abs=1e-12)


def test_gradients(task):
    cosine, count, offset, scatter, share = task
    inputs = (cosine.requires_grad_(), scatter.requires_grad_(), share.requires_grad_())
    assert torch.autograd.gradcheck(lambda c, b, w: shot_scores(c, count, offset, b, w), inputs)


def test_equal_supports_and_infinite_scatter_are_the_simpler_law(task):
    cosine, count, offset, scatter, share = task
    plain = temper(cosine, shot_factor(count, offset))
    never = torch.full_like(scatter, torch.inf)
    assert torch.equal(shot_scores(cosine, count, offset, never, share), plain)
    equal = torch.full_like(count, 3.0)
    found = shot_scores(cosine, equal, offset, scatter, share).softmax(-1)
    torch.testing.assert_close(found, (3 / 3.4 * cosine).softmax(-1))


@pytest.mark.parametrize("scatter", [0.5, 5.0])
@pytest.mark.parametrize("n", [1, 4])
def test_the_expected_similarity_is_that_of_gaussian_classes(generator, n, scatter):
    def draw(*shape):
        return torch.randn(*shape, 400, generator=generator, dtype=torch.float64)

    classes = draw(200)
    means = (classes + math.sqrt(scatter) * draw(n, 200)).mean(0)
    items = classes + math.sqrt(scatter) * draw(200)
    found = (normalize(items) * normalize(means)).sum(-1).mean()
    expected = own_similarity(torch.tensor(float(n)), torch.tensor(scatter))
    assert found.item() == pytest.approx(expected.item(), abs=0.015)


@pytest.mark.parametrize(("way", "share"), [(2, 0.5), (5, 0.2)])
def test_the_bias_is_where_the_odds_are_even(generator, way, share):
    """Midway between the similarities of other queries and of those of the class.

    The origin is the mean of the class means, so it has a share of the noise of each.
    """
    tasks, scatter, n = 3000, 2.0, torch.tensor([1.0, *[20.0] * (way - 1)]).double()

    def draw(*shape):
        return torch.randn(*shape, 50, generator=generator, dtype=torch.float64)

    classes = draw(tasks, way)
    means = classes + math.sqrt(scatter) * draw(tasks, way) / n.sqrt().unsqueeze(-1)
    items = classes + math.sqrt(scatter) * draw(tasks, way)
    origin = means.mean(1, keepdim=True)
    cosine = (normalize(items - origin) @ normalize(means - origin).mT).mean(0)  # (query, way)
    own = cosine.diagonal()
    other = (cosine.sum(0) - own) / (way - 1)
    middle = (own + other) / 2
    expected = shot_bias(n, 0.0, torch.tensor(scatter).double(), share)
    plain = shot_bias(n, 0.0, torch.tensor(scatter).double())
    # what one class has more than another decides
    difference, without = (
        ((v[1] - v[0]) - (middle[1] - middle[0])).abs() for v in (expected, plain)
    )
    assert difference < 0.5 * without
