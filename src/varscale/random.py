"""Random numbers that are a pure function of (seed, stream, index), by Philox4x32-10.

Draw *i* of a stream is the same whatever was drawn before it, in whatever pieces, in whatever
process: nothing here has a state.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

import hashlib

import numpy as np
import torch
from jaxtyping import Float, UInt32, UInt64
from torch import Tensor

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(
    counter: UInt64[np.ndarray, "*blocks 4"], key: UInt64[np.ndarray, "2"]
) -> UInt32[np.ndarray, "*blocks 4"]:
    """Four random 32-bit words for each counter of four 32-bit words (kept in 64 bits)."""
    even, odd = counter[..., 0::2], counter[..., 1::2]  # words 0, 2 and 1, 3
    for _ in range(10):
        product = even * _MULTIPLIERS
        high, low = product >> _HALF, product & _LOW
        # New word 0 is the high half of word 2's product, and the other way round.
        even, odd = high[..., ::-1] ^ odd ^ key, low[..., ::-1]
        key = (key + _WEYL) & _LOW
    return np.stack([even, odd], axis=-1).reshape(counter.shape).astype(np.uint32)


def stream_key(seed: int, stream: str) -> UInt64[np.ndarray, "2"]:
    """The key of a named stream: streams of one seed, and seeds of one stream, are unrelated."""
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
    return np.frombuffer(digest, dtype="<u4").astype(np.uint64)


def words(
    seed: int, stream: str, start: int, count: int, size: int
) -> UInt32[np.ndarray, "count size"]:
    """`size` random 32-bit words for each index in start..start+count-1."""
    blocks = -(-size // 4)
    index = np.arange(start, start + count, dtype=np.uint64)[:, None]
    counter = np.zeros((count, blocks, 4), dtype=np.uint64)
    counter[..., 0] = np.arange(blocks, dtype=np.uint64)
    counter[..., 2] = index & _LOW
    counter[..., 3] = index >> _HALF
    return philox(counter, stream_key(seed, stream)).reshape(count, -1)[:, :size]


def uniform(
    seed: int, stream: str, start: int, count: int, size: int
) -> Float[np.ndarray, "count size"]:
    """Uniform float64 in [0, 1) with 53 random bits each."""
    pairs = words(seed, stream, start, count, 2 * size).astype(np.uint64)
    bits = (pairs[:, 0::2] << np.uint64(21)) ^ (pairs[:, 1::2] >> np.uint64(11))
    return np.asarray(bits * 2.0**-53)


def normal(
    seed: int, stream: str, start: int, count: int, size: int
) -> Float[Tensor, "count size"]:
    """Standard normal draws in float64, by Box and Muller.

    Example:
        >>> whole = normal(0, "alpha", start=0, count=4, size=3)
        >>> torch.equal(whole[2:], normal(0, "alpha", start=2, count=2, size=3))
        True
    """
    half = -(-size // 2)
    u = uniform(seed, stream, start, count, 2 * half)
    radius, angle = np.sqrt(-2 * np.log1p(-u[:, :half])), 2 * np.pi * u[:, half:]
    draws = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return torch.from_numpy(draws[:, :size])
