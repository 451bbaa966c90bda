import numpy as np
import pytest

from varscale.data import lehmer


def plain(ranks, size):
    """Take the value of each rank out of a list."""
    pool = list(range(size))
    return [pool.pop(rank) for rank in ranks]


def step_over(ranks):
    """Step over the values taken before, lowest first."""
    taken = []
    for value in ranks:
        for lower in sorted(taken):
            value += value >= lower
        taken.append(value)
    return taken


@pytest.mark.parametrize("few", [0, 10**6], ids=["numpy", "long integers"])
@pytest.mark.parametrize(
    ("n", "rows", "size"),
    [(1, 1, 1), (1, 3, 4), (2, 1, 2), (5, 7, 5), (16, 5, 17), (30, 3, 600), (4, 2, 2**15)],
)
def test_ranks_become_values(n, rows, size, few, monkeypatch):
    monkeypatch.setattr(lehmer, "_FEW", few)
    rng = np.random.default_rng(0)
    for _ in range(20):
        ranks = rng.integers(0, size - np.arange(n)[:, None], (n, rows))
        drawn = lehmer.distinct(ranks.astype(np.uint64), size)
        assert drawn.T.tolist() == [plain(row, size) for row in ranks.T]
        assert drawn.T.tolist() == [step_over(row) for row in ranks.T]


@pytest.mark.parametrize("few", [0, 10**6], ids=["numpy", "long integers"])
@pytest.mark.parametrize("size", [2**15 - 1, 2**15, 2**15 + 1, 2**16, 2**31 - 1])
def test_the_largest_and_the_smallest_ranks(size, few, monkeypatch):
    """Always the last of what is left, always the first, and what fills the lanes."""
    monkeypatch.setattr(lehmer, "_FEW", few)
    n = 6
    last, first = [size - 1 - i for i in range(n)], [0] * n
    mixed = [size - 1, 0, size - 3, 0, size - 5, size - 6]
    ranks = np.array([last, first, mixed], dtype=np.uint64).T
    expected = [step_over(row) for row in (last, first, mixed)]
    assert lehmer.distinct(ranks, size).T.tolist() == expected


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_nothing_to_decode(shape):
    assert lehmer.distinct(np.zeros(shape, dtype=np.uint64), 9).shape == shape
