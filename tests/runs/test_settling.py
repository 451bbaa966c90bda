"""Whether a scale has settled, from its path alone."""

import math

import pytest

from varscale.runs.settling import SETTLED, describe_scale, follow_scale


def rows(path):
    return [{"step": n + 1, "scale_mean": value} for n, value in enumerate(path)]


def test_a_scale_that_stays_has_settled():
    scale = follow_scale(rows([3.0] + [20.0] * 99))
    assert scale == {"begin": 3.0, "end": 20.0, "drift": 0.0}
    assert describe_scale(scale) == "scale: 3 at the first step, 20 at the last, settled."


def test_jitter_around_a_value_is_settled():
    scale = follow_scale(rows([20 + (-1) ** n for n in range(200)]))
    assert abs(scale["drift"]) <= SETTLED
    assert "settled" in describe_scale(scale)


@pytest.mark.parametrize(("rate", "way"), [(0.01, "rising"), (-0.01, "falling")])
def test_a_scale_on_its_way_is_named_with_a_remedy(rate, way):
    """1 % at a step: the halves of the last 20 of 200 steps are ten steps apart."""
    scale = follow_scale(rows([10 * math.exp(rate * n) for n in range(200)]))
    assert scale["drift"] == pytest.approx(2 * (math.exp(10 * rate) - 1))
    text = describe_scale(scale)
    assert f"still {way} ({100 * scale['drift']:+.0f} % over the last steps" in text
    assert "train longer." in text
    assert "settled" not in text
    assert "log-normal" not in describe_scale({**scale, "log": 1})
    assert "or use a log-normal family" in describe_scale({**scale, "log": 0})
    refitted = describe_scale({**scale, "log": 0, "relearned": 12.0})
    assert refitted.endswith("over the last steps); refitted to 12 on the validation classes.")


def test_the_bound_of_settling_is_sharp():
    scale = {"begin": 1.0, "end": 2.0, "drift": SETTLED}
    assert "settled" in describe_scale(scale)
    assert "rising" in describe_scale({**scale, "drift": SETTLED + 1e-9})
    assert "falling" in describe_scale({**scale, "drift": -SETTLED - 1e-9})


@pytest.mark.parametrize("n", [2, 3, 19, 20, 21, 40, 45])
def test_the_drift_of_a_line_in_loops(n):
    path = [5.0 + k for k in range(n)]
    half = max(n // 20, min(n // 2, 10))
    later = sum(path[n - half :]) / half
    earlier = sum(path[n - 2 * half : n - half]) / half
    assert follow_scale(rows(path))["drift"] == pytest.approx(2 * (later - earlier) / earlier)


def test_one_row_and_no_rows():
    assert follow_scale(rows([7.0])) == {"begin": 7.0, "end": 7.0, "drift": 0.0}
    assert follow_scale([]) == {}
    assert follow_scale([{"step": 1, "scale_mean": None}, {"step": 2, "loss": 1.0}]) == {}
    mixed = [{"step": 1, "loss": 1.0}, *rows([4.0, 4.0])]  # a step of co-training has no scale
    assert follow_scale(mixed) == {"begin": 4.0, "end": 4.0, "drift": 0.0}


def test_a_scale_from_zero_has_not_settled():
    scale = follow_scale(rows([0.0, 5.0]))
    assert scale["drift"] == math.inf
    assert "still rising" in describe_scale(scale)


def test_what_was_relearned_is_told():
    scale = {"begin": 10.0, "end": 20.0, "drift": 0.0, "trained": 19.0, "relearned": 23.456}
    assert describe_scale(scale).endswith("settled; refitted to 23.5 on the validation classes.")
