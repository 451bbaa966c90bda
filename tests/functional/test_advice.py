"""Formulas of advice against plain loops."""

import numpy as np
import oracle
import pytest
import torch

from varscale.functional import choose_covering, extrapolate_error


@pytest.mark.parametrize("seed", range(5))
def test_choosing_is_the_greedy_loop(seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(30, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    s = (x @ x.T).clip(0) ** 2
    covered, weight = draw.uniform(0, 0.5, 30), draw.uniform(size=30)
    found = choose_covering(*map(torch.from_numpy, (s, covered, weight)), 12).tolist()
    assert found == oracle.choose_covering(s.tolist(), covered.tolist(), weight.tolist(), 12)


def test_every_item_is_chosen_once_even_without_gain():
    found = choose_covering(torch.ones(6, 6), torch.ones(6), torch.ones(6), 6)
    assert sorted(found.tolist()) == list(range(6))


@pytest.mark.parametrize("way", [2, 5, 30])
@pytest.mark.parametrize("error", [0.0, 0.03, 0.3, 1.0])
def test_the_law_of_errors(way, error):
    draw = np.random.default_rng(way)
    shots = torch.from_numpy(draw.integers(1, 5, size=(2, way)).astype(float))
    target = torch.from_numpy(draw.integers(5, 12, size=way).astype(float))
    errors = torch.tensor([error, error / 2], dtype=torch.float64)
    found = extrapolate_error(errors, shots, 3 * way, target, width=1.645)
    given = errors.tolist(), shots.tolist(), 3 * way, target.tolist(), 1.645
    np.testing.assert_allclose(found, oracle.extrapolate_error(*given), atol=1e-9)
    middle, low, high = found
    assert 0 < low <= middle <= high <= 1 - 1 / way


def test_more_shots_never_hurt_and_more_answers_narrow():
    few = torch.full((1, 8), 2.0)
    error, ends = torch.tensor([0.2]), []
    for answers in (24, 1000):
        many = [
            extrapolate_error(error, few, answers, torch.full((8,), n), width=1.645)
            for n in (2.0, 5.0, 50.0)
        ]
        assert many[0][0] > many[1][0] > many[2][0]
        ends.append(many[0][2] - many[0][1])
    assert ends[1] < ends[0]
    # with very many answers nothing is shrunk, and at the same shots nothing changes
    same = extrapolate_error(error.double(), few, 10**9, few[0], width=0.0)
    np.testing.assert_allclose(same, 0.2, atol=1e-6)
