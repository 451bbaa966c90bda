"""Turn independent draws into samples without replacement, by decoding Lehmer codes."""

from functools import lru_cache

import numpy as np
from jaxtyping import Int, UInt64

_U2, _U4 = np.dtype("<u2"), np.dtype("<u4")
_FEW = 256  # up to this many ranks, one long Python integer is faster than numpy


def distinct(draws: UInt64[np.ndarray, "n row"], size: int) -> Int[np.ndarray, "n row"]:
    """Ordered sample without replacement, from draws of 0..size-1, 0..size-2, and so on.

    Draw i is a rank among the values that draws 0..i-1 left. From the last but one to the first,
    each rank removes its value from the range of all later ones: those that reach it move up by
    one.

    Args:
        draws: Ranks; every column is an independent sample.
        size: Largest number of values that a sample is drawn from; below 2**31.
    """
    small = size <= 2**15
    if draws.size <= _FEW:
        return _few(draws.astype(_U2 if small else _U4))
    values = draws.astype(np.int16 if small else np.int32)
    for i in range(len(values) - 2, -1, -1):
        later = values[i + 1 :]
        later += later >= values[i]
    return values.astype(np.int64)


def _few(ranks: np.ndarray) -> np.ndarray:
    """Decode by long arithmetic: one Python integer holds all ranks, a lane of bits for each.

    The top bit of a lane is free. Set in `later`, it survives the subtraction of `rank` where
    later >= rank, and no lane borrows from the next.
    """
    steps, width, top = _lanes(*ranks.shape, 8 * ranks.itemsize)
    packed = int.from_bytes(ranks.tobytes(), "little")
    row = (1 << width) - 1
    later = 0
    for place, tops, copies in steps:
        rank = packed >> place & row
        later += ((later | tops) - rank * copies & tops) >> top
        later = later << width | rank
    data = later.to_bytes(ranks.nbytes, "little")
    return np.frombuffer(data, ranks.dtype).reshape(ranks.shape).astype(np.int64)


@lru_cache(maxsize=64)
def _lanes(n: int, rows: int, bits: int) -> tuple[list[tuple[int, int, int]], int, int]:
    """Position of the ranks of each step, top bits of all later lanes, a 1 for each later row."""
    width, top = rows * bits, bits - 1
    steps = []
    lanes = starts = 0
    for i in range(n - 1, -1, -1):
        steps.append((i * width, lanes << top, starts))
        lanes = lanes << width | sum(1 << bits * k for k in range(rows))
        starts = starts << width | 1
    return steps, width, top
