"""Unlabelled queries as examples of each other (M44)."""

import math

import pytest
import torch

from varscale.functional import transduce


@pytest.fixture
def task():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    means = draw(3, 4)
    query = torch.cat([*(means[k] + 0.4 * draw(5, 4) for k in range(3)), -means[:1] + draw(4, 4)])
    return {
        "query": query,
        "means": means,
        "count": torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64),
        "correction": 0.3 * draw(3, 4),
        "intercept": 0.2 * draw(3),
        "alpha": torch.tensor(6.0, dtype=torch.float64),
        "std": torch.tensor(0.4, dtype=torch.float64),
        "scatter": torch.tensor(0.7, dtype=torch.float64),
        "share": torch.tensor(0.3, dtype=torch.float64),
        "offset": 0.5,
        "power": 0.2,
        "typical": 0.6,
    }


def oracle(
    query, means, count, correction, intercept,
    alpha, std, scatter, share, offset, power, typical, steps,
):  # fmt: skip
    """The same, query by query and class by class."""
    way, p, b = len(means), [[0.0] * len(means) for _ in query], scatter.item()
    for _ in range(steps + 1):
        new = []
        for j, x in enumerate(query):
            others = [sum(s[k] for i, s in enumerate(p) if i != j) for k in range(way)]
            cosines = []
            for k in range(way):
                total = count[k] * means[k]
                for i, y in enumerate(query):
                    total = total + p[i][k] * y if i != j else total
                cosines.append((x @ total / (x.norm() * total.norm())).item())
            mean = sum(cosines) / way
            shots = [count[k].item() + others[k] for k in range(way)]
            even = [(0.5 - share.item() * b / n) / math.sqrt((1 + b) * (1 + b / n)) for n in shots]
            scores = [
                alpha.item() * n / (n + offset) * (c - mean - e) + (v @ x / x.norm() + u).item()
                for n, c, e, v, u in zip(shots, cosines, even, correction, intercept, strict=True)
            ]
            top = max(cosines[scores.index(max(scores))], typical / 2)
            scores = [(top / typical) ** -power * s for s in scores]
            average = torch.zeros(way).double()
            for node, weight in ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6)):
                factor = math.exp(std.item() * node)
                known = [factor * s + math.log(5 + n) for s, n in zip(scores, others, strict=True)]
                average += weight * torch.tensor(known, dtype=torch.float64).softmax(-1)
            new.append(average.tolist())
        p = new
    return torch.tensor(p, dtype=torch.float64)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_plain_loops(task, steps):
    torch.testing.assert_close(transduce(**task, steps=steps), oracle(**task, steps=steps))


def test_tasks_at_once(task):
    two = {k: torch.stack([v, 1.5 * v]) if isinstance(v, torch.Tensor) else v
           for k, v in task.items()}  # fmt: skip
    torch.testing.assert_close(transduce(**two)[0], transduce(**task))


def test_queries_help_each_other():
    generator = torch.Generator().manual_seed(1)
    truth = torch.arange(3).repeat_interleave(20)
    centres = torch.eye(3, 8, dtype=torch.float64)
    query = centres[truth] + 0.25 * torch.randn(60, 8, generator=generator, dtype=torch.float64)
    means = centres + 0.6 * torch.randn(3, 8, generator=generator, dtype=torch.float64)
    given = (
        query,
        means,
        torch.ones(3).double(),
        torch.zeros(3, 8).double(),
        torch.zeros(3).double(),
    )
    scale = tuple(torch.tensor(v).double() for v in (8.0, 0.1, 1.0, 0.2))
    right = []
    for steps in (0, 10):
        answer = transduce(*given, *scale, 0.5, 0.0, 1.0, steps=steps).argmax(-1)
        right.append((answer == truth).double().mean().item())
    assert right[1] > right[0] + 0.02


def test_zero_queries_and_means_are_no_nan(task):
    query = torch.cat([task["query"], torch.zeros(1, 4, dtype=torch.float64)])
    found = transduce(**{**task, "query": query, "means": torch.zeros_like(task["means"])})
    assert found.isfinite().all()
