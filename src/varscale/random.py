"""Random numbers that are a pure function of (seed, stream, index), by Philox4x32-10.

Draw *i* of a stream is the same whatever was drawn before it, in whatever pieces, in whatever
process: nothing here has a state.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

import hashlib
import operator

import numpy as np
import torch
from jaxtyping import Float, UInt32, UInt64
from torch import Tensor


def philox(
    counter: tuple[UInt32[np.ndarray, "*n"], ...], key: tuple[int, int]
) -> list[UInt32[np.ndarray, "*n"]]:
    """Four random 32-bit words for each counter of four 32-bit words; all of them at once."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        low2, high2 = _halves(x2, 0xCD9E8D57)
        low0, high0 = _halves(x0, 0xD2511F53)
        x0, x1 = high2 ^ x1 ^ np.uint32(k0), low2
        x2, x3 = high0 ^ x3 ^ np.uint32(k1), low0
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [x0, x1, x2, x3]


def _halves(x: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """Low and high half of a 64-bit product, as views: no pass over the data beyond the product."""
    product = np.multiply(x, np.uint64(factor), dtype="<u8").view("<u4")
    return product[..., 0::2], product[..., 1::2]


def stream_key(seed: int, stream: str) -> tuple[int, int]:
    """The key of a named stream: streams of one seed, and seeds of one stream, are unrelated."""
    digest = hashlib.blake2b(f"{operator.index(seed)}/{stream}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def words(
    seed: int, stream: str, index: UInt64[np.ndarray, " n"], size: int, attempt: int = 0
) -> UInt32[np.ndarray, "n size"]:
    """`size` random 32-bit words for each index; another `attempt` gives other words."""
    n, blocks = len(index), -(-size // 4)
    block = np.arange(blocks, dtype=np.uint32)
    low, high = (
        (index & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        (index >> np.uint64(32)).astype(np.uint32),
    )
    counter = (block, np.uint32(attempt), low[:, None], high[:, None])
    out = np.empty((n, blocks, 4), dtype=np.uint32)
    grid = tuple(np.ascontiguousarray(np.broadcast_to(c, (n, blocks))) for c in counter)
    for position, word in enumerate(philox(grid, stream_key(seed, stream))):
        out[..., position] = word
    return out.reshape(n, 4 * blocks)[:, :size]


def span(start: int, count: int) -> UInt64[np.ndarray, " count"]:
    """The indices start, start + 1, ... that a batch of draws is for."""
    if start < 0 or count < 0 or start + count > 2**63:
        raise ValueError(
            f"Expected an index and a count >= 0 with a sum below 2**63, got {start} and {count}."
        )
    return np.arange(start, start + count, dtype=np.uint64)


def integers(
    seed: int,
    stream: str,
    index: UInt64[np.ndarray, " n"],
    bounds: UInt64[np.ndarray, "#n size"],
) -> UInt64[np.ndarray, "n size"]:
    """Integers in 0..bound-1, exactly uniform, for each index and each bound below 2**32.

    Lemire's method: the high half of word x bound, unless the low half falls into the part that
    would make some values likelier; then the word of the next attempt decides.
    """
    excess = np.uint64(2**32) % bounds
    product = words(seed, stream, index, bounds.shape[1]) * bounds
    attempt = 0
    while (biased := (product & np.uint64(0xFFFFFFFF)) < excess).any():
        attempt += 1
        row = biased.any(axis=1).nonzero()[0]
        again = words(seed, stream, index[row], bounds.shape[1], attempt)
        redrawn = again * (bounds[row] if len(bounds) > 1 else bounds)
        product[row] = np.where(biased[row], redrawn, product[row])
    return np.asarray(product >> np.uint64(32))


def uniform(
    seed: int, stream: str, start: int, count: int, size: int
) -> Float[np.ndarray, "count size"]:
    """Uniform float64 in [0, 1) with 53 random bits each."""
    pairs = words(seed, stream, span(start, count), 2 * size).astype(np.uint64)
    bits = (pairs[:, 0::2] << np.uint64(21)) ^ (pairs[:, 1::2] >> np.uint64(11))
    return np.asarray(bits * 2.0**-53)


class Ahead:
    """Standard normal draws of a stream, one block at a time: a single draw costs as much as many.

    Args:
        stream: Name of the stream.
        block: Indices to draw at once.
    """

    def __init__(self, stream: str, block: int = 64) -> None:
        self.stream, self.block = stream, block
        self._drawn: tuple[tuple[int, int, int], Tensor] | None = None

    def __call__(self, seed: int, start: int, count: int, size: int) -> Float[Tensor, "count size"]:
        """What `normal` gives for the stream."""
        number, place = divmod(start, self.block)
        if count > self.block - place or size > 4096:  # not within one block, or large by itself
            return normal(seed, self.stream, start, count, size)
        key = (seed, number, size)
        if self._drawn is None or self._drawn[0] != key:
            drawn = normal(seed, self.stream, number * self.block, self.block, size)
            self._drawn = key, drawn
        return self._drawn[1][place : place + count]


def normal(
    seed: int, stream: str, start: int, count: int, size: int
) -> Float[Tensor, "count size"]:
    """Standard normal draws in float64, by Box and Muller.

    Example:
        >>> whole = normal(0, "alpha", start=0, count=4, size=3)
        >>> torch.equal(whole[2:], normal(0, "alpha", start=2, count=2, size=3))
        True
    """
    u = uniform(seed, stream, start, count, size + size % 2)
    radius, angle = np.sqrt(-2 * np.log1p(-u[:, 0::2])), 2 * np.pi * u[:, 1::2]
    draws = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    return torch.from_numpy(draws.reshape(u.shape)[:, :size])
