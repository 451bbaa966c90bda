import numpy as np
import pytest
import torch

from varscale.core import random


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
    words = random.philox(tuple(np.array([c], dtype=np.uint32) for c in counter), tuple(key))
    assert " ".join(f"{w[0]:08x}" for w in words) == expected


def test_draws_depend_on_nothing_but_seed_stream_and_index():
    whole = random.normal(3, "alpha", 0, 100, 7)
    pieces = torch.cat([random.normal(3, "alpha", s, 10, 7) for s in range(0, 100, 10)])
    assert torch.equal(whole, pieces)
    assert not torch.equal(whole, random.normal(4, "alpha", 0, 100, 7))
    assert not torch.equal(whole, random.normal(3, "other", 0, 100, 7))


def test_indices_beyond_32_bits_do_not_wrap():
    low, high = (random.words(0, "x", random.span(i, 1), 4) for i in (5, 2**32 + 5))
    assert not np.array_equal(low, high)


def test_a_longer_row_begins_with_a_shorter_one():
    index = random.span(0, 3)
    short, long = (random.words(0, "x", index, n) for n in (5, 9))
    assert np.array_equal(short, long[:, :5])
    assert not np.array_equal(long, random.words(0, "x", index, 9, attempt=1))
    few, many = (random.normal(0, "x", 0, 3, n) for n in (5, 8))
    assert torch.equal(few, many[:, :5])
    assert random.normal(0, "x", 0, 0, 3).shape == (0, 3)


@pytest.mark.parametrize("few", [0, 10**6], ids=["numpy", "long integers"])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
@pytest.mark.parametrize("start", [0, 2**32 - 1, 2**63 - 9])
def test_streams_drawn_together_are_the_same_words(start, count, few, monkeypatch):
    monkeypatch.setattr(random, "_FEW", few)
    sizes = {"x": 5, "y": 83, "none": 0, "z": 4}
    index = random.span(start, count)
    for stream, drawn in zip(sizes, random.Words(-7, sizes)(index), strict=True):
        assert drawn.dtype == np.uint64
        assert np.array_equal(drawn, random.words(-7, stream, index, sizes[stream]))


def test_philox_takes_a_key_for_each_counter():
    rng = np.random.default_rng(0)
    counter = tuple(rng.integers(2**32, size=(3, 4), dtype=np.uint32) for _ in range(4))
    keys = rng.integers(2**32, size=(2, 3, 1), dtype=np.uint32)
    together = random.philox(counter, keys)
    for i in range(3):
        alone = random.philox(tuple(c[i] for c in counter), tuple(keys[:, i, 0].tolist()))
        assert np.array_equal([word[i] for word in together], alone)


def test_words_drawn_before_give_the_same_integers():
    """Of bounds at which words are redrawn, too."""
    index = random.span(3, 200)
    bounds = np.array([[3 * 2**30, 7, 2**31 + 1]], dtype=np.uint64)
    (drawn,) = random.Words(0, {"x": 3})(index)
    together = random.integers(0, "x", index, bounds, drawn)
    assert np.array_equal(together, random.integers(0, "x", index, bounds))
    assert not np.array_equal(together, drawn * bounds >> np.uint64(32))  # some were redrawn


@pytest.mark.parametrize(("start", "count"), [(-1, 2), (0, -1), (2**63, 1)])
def test_impossible_indices_are_refused(start, count):
    with pytest.raises(ValueError, match="Expected an index"):
        random.span(start, count)


def test_integers_are_exactly_uniform():
    """At a bound of 3 * 2**30 one word in four is redrawn; without that a third would be biased."""
    bound = np.array([[3 * 2**30]], dtype=np.uint64)
    draws = random.integers(0, "x", random.span(0, 30_000), bound)
    assert draws.max() < 3 * 2**30
    counts = np.bincount((draws[:, 0] % np.uint64(3)).astype(int), minlength=3)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 13.8  # chi-square, 2 degrees, p = 0.001
    pieces = [random.integers(0, "x", random.span(s, 100), bound) for s in range(0, 30_000, 100)]
    assert np.array_equal(draws, np.concatenate(pieces))


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


def test_draws_made_ahead_are_the_same_draws():
    ahead, normal = random.Ahead("alpha", block=8), random.normal
    for start, count, size in [(0, 1, 3), (1, 2, 3), (7, 1, 3), (6, 5, 3), (9, 1, 2), (0, 1, 5000)]:
        expected = normal(4, "alpha", start, count, size)
        assert torch.equal(ahead(4, start, count, size), expected)
    assert torch.equal(ahead(5, 0, 1, 3), normal(5, "alpha", 0, 1, 3))
