import numpy as np
import pytest
import torch

from varscale import random


def block(*words):
    return np.array(words, dtype=np.uint64)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_philox(counter, key, expected):
    words = random.philox(block(*counter), block(*key))
    assert " ".join(f"{w:08x}" for w in words) == expected


def test_draws_depend_on_nothing_but_seed_stream_and_index():
    whole = random.normal(3, "alpha", 0, 100, 7)
    pieces = torch.cat([random.normal(3, "alpha", s, 10, 7) for s in range(0, 100, 10)])
    assert torch.equal(whole, pieces)
    assert not torch.equal(whole, random.normal(4, "alpha", 0, 100, 7))
    assert not torch.equal(whole, random.normal(3, "other", 0, 100, 7))


def test_indices_beyond_32_bits_do_not_wrap():
    assert not np.array_equal(random.words(0, "x", 5, 1, 4), random.words(0, "x", 2**32 + 5, 1, 4))


def test_the_first_draws_of_a_longer_row_are_those_of_a_shorter_one_in_words():
    assert np.array_equal(random.words(0, "x", 0, 3, 5), random.words(0, "x", 0, 3, 9)[:, :5])


def test_moments():
    draws = random.normal(0, "alpha", 0, 1000, 501)
    assert draws.shape == (1000, 501)
    assert draws.mean().abs() < 0.01
    assert (draws.std() - 1).abs() < 0.01
    assert (draws.pow(4).mean() - 3).abs() < 0.05
    assert torch.corrcoef(draws[:, :2].T)[0, 1].abs() < 0.1
    uniform = random.uniform(0, "u", 0, 1000, 100)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.005
