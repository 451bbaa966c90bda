"""Scores of classes with different numbers of supports (M49)."""

import math

import pytest
import torch

from varscale.functional import normalize, own_similarity, shot_factor, shot_scores, temper


@pytest.fixture
def task(generator):
    count = torch.tensor([[1.0, 2.0, 7.0], [5.0, 5.0, 1.0]], dtype=torch.float64).unsqueeze(-2)
    scatter = torch.tensor([0.6, 3.0], dtype=torch.float64)
    return torch.rand(2, 4, 3, generator=generator, dtype=torch.float64), count, 0.4, scatter


def test_plain_loops(task):
    cosine, count, offset, scatter = task
    found = shot_scores(cosine, count, offset, scatter)
    for t in range(2):
        for j in range(4):
            row = cosine[t, j].tolist()
            for k, n in enumerate(count[t, 0].tolist()):
                own = 1 / math.sqrt((1 + scatter[t].item()) * (1 + scatter[t].item() / n))
                expected = n / (n + offset) * (row[k] - sum(row) / 3 - own / 2)
                assert found[t, j, k].item() == pytest.approx(expected, abs=1e-12)


def test_gradients(task):
    cosine, count, offset, scatter = task
    inputs = (cosine.requires_grad_(), scatter.requires_grad_())
    assert torch.autograd.gradcheck(lambda c, b: shot_scores(c, count, offset, b), inputs)


def test_equal_supports_and_infinite_scatter_are_the_simpler_law(task):
    cosine, count, offset, scatter = task
    plain = temper(cosine, shot_factor(count, offset))
    never = torch.full_like(scatter, torch.inf)
    assert torch.equal(shot_scores(cosine, count, offset, never), plain)
    equal = torch.full_like(count, 3.0)
    found = shot_scores(cosine, equal, offset, scatter).softmax(-1)
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
