"""Samples without replacement from independent draws: decoding Lehmer codes."""

from functools import lru_cache

import numpy as np
from jaxtyping import Int, UInt64

_FEW = 512  # numbers that one Python integer decodes faster than numpy's calls do


def distinct(draws: UInt64[np.ndarray, "n row"], size: int) -> Int[np.ndarray, "n row"]:
    """An ordered sample without replacement from draws of 0..size-1, 0..size-2, and so on.

    Draw i is a rank among what draws 0..i-1 left. From the last but one to the first, each rank
    takes its value out of the range of all later ones: those that reach it move up by one.

    Args:
        draws: Ranks; every column is a sample of its own.
        size: No sample has more values to draw from; below 2**31.
    """
    small = size <= 2**15
    if draws.size <= _FEW:
        return _few(draws.astype("<u2" if small else "<u4"))
    values = draws.astype(np.int16 if small else np.int32)
    for i in range(len(values) - 2, -1, -1):
        later = values[i + 1 :]
        later += later >= values[i]
    return values.astype(np.int64)


def _few(ranks: np.ndarray) -> np.ndarray:
    """The same by long arithmetic: one Python integer holds all ranks, a lane of bits for each.

    The top bit of every lane is free. Set in `later`, it survives the subtraction of `rank` where
    later >= rank, and no lane borrows from the next.
    """
    steps, row, top = _lanes(*ranks.shape, 8 * ranks.itemsize)
    values = int.from_bytes(ranks.tobytes(), "little")
    for place, tops, copies in steps:
        rank = values >> place & row
        values += ((values | tops) - rank * copies & tops) >> top
    data = values.to_bytes(ranks.nbytes, "little")
    return np.frombuffer(data, ranks.dtype).reshape(ranks.shape).astype(np.int64)


@lru_cache(maxsize=64)
def _lanes(n: int, rows: int, bits: int) -> tuple[list[tuple[int, int, int]], int, int]:
    """For each step the place of its ranks, the top bits of later lanes, a 1 for each later row."""
    width = rows * bits
    top = bits - 1
    lanes = sum(1 << bits * i for i in range(n * rows))
    starts = sum(1 << width * i for i in range(n))
    steps = []
    for i in range(n - 2, -1, -1):
        later = width * (i + 1)
        steps.append((width * i, lanes >> later << later + top, starts >> later << later))
    return steps, (1 << width) - 1, top
