"""Random numbers that are a pure function of (seed, stream, index), by Philox4x32-10.

Draw *i* of a stream does not depend on earlier draws, on batch sizes or on the process: there is no
state.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

import hashlib
import operator
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, UInt32, UInt64
from torch import Tensor

_FACTORS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_U8: np.dtype[np.uint64] = np.dtype("<u8")
_FEW = 256  # up to this many blocks, one long Python integer is faster than numpy


def philox(
    counter: tuple[UInt32[np.ndarray, "*#n"], ...],
    key: tuple[int, int] | UInt32[np.ndarray, "2 *#n"],
) -> list[UInt32[np.ndarray, "*n"]]:
    """Four random 32-bit words for each counter of four 32-bit words, all counters at once."""
    shape = np.broadcast_shapes(*(word.shape for word in counter))
    pair = (2,) + (1,) * len(shape)
    factors, weyl = (np.array(two, dtype=_U8).reshape(pair) for two in (_FACTORS, _WEYL))
    keys = np.array(key, dtype=_U8)
    keys = keys.reshape(pair) if keys.ndim == 1 else keys
    even, odd, product = (np.empty((2, *shape), dtype=_U8) for _ in range(3))
    even[0], odd[0], even[1], odd[1] = counter
    odd = odd[::-1]
    # A round makes (x0, x1) from x2 and (x2, x3) from x0. Rows stay where they are and swap their
    # meaning instead; an even number of rounds swaps it back.
    low, half, keys, weyl = np.uint64(_LOW), np.uint64(32), keys[::-1], weyl[::-1]
    for _ in range(10):
        np.multiply(even, factors, out=product)
        np.right_shift(product, half, out=even)
        even ^= odd
        even ^= keys
        even &= low  # `odd` holds whole products, of which only the low halves count
        odd, product = product[::-1], odd[::-1]
        factors, keys, weyl = factors[::-1], (keys + weyl & low)[::-1], weyl[::-1]
    words = (even[0], odd[1], even[1], odd[0])
    return [word.view("<u4")[..., ::2] for word in words]


def stream_key(seed: int, stream: str) -> tuple[int, int]:
    """Key of a named stream; streams of one seed, and seeds of one stream, are unrelated."""
    digest = hashlib.blake2b(f"{operator.index(seed)}/{stream}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def words(
    seed: int, stream: str, index: UInt64[np.ndarray, " n"], size: int, attempt: int = 0
) -> UInt32[np.ndarray, "n size"]:
    """`size` random 32-bit words for each index; another `attempt` gives other words."""
    n, blocks = len(index), -(-size // 4)
    block = np.arange(blocks, dtype=np.uint32)
    out = np.empty((n, blocks, 4), dtype=np.uint32)
    counter = _counter(block, attempt, index[:, None])
    for position, word in enumerate(philox(counter, stream_key(seed, stream))):
        out[..., position] = word
    return out.reshape(n, 4 * blocks)[:, :size]


def _counter(block: np.ndarray, attempt: int, index: np.ndarray) -> tuple[np.ndarray, ...]:
    low, high = index & np.uint64(_LOW), index >> np.uint64(32)
    return block, np.array(attempt, dtype=np.uint32), low.astype(np.uint32), high.astype(np.uint32)


class Words:
    """The `words` of several streams, of some size each, drawn in one call of `philox`.

    Example:
        >>> one, other = Words(0, {"x": 5, "y": 2})(span(7, 3))
        >>> bool((other == words(0, "y", span(7, 3), 2)).all())
        True
    """

    def __init__(self, seed: int, sizes: dict[str, int]) -> None:
        blocks = [-(-size // 4) for size in sizes.values()]
        self._block = np.concatenate([np.arange(n, dtype=np.uint32) for n in blocks])
        keys = np.array([stream_key(seed, stream) for stream in sizes], dtype=np.uint32)
        self._keys = np.repeat(keys.T, blocks, axis=1)  # (2, block)
        first = 4 * (np.cumsum(blocks) - blocks)
        self._parts = [slice(i, i + n) for i, n in zip(first, sizes.values(), strict=True)]

    def __call__(self, index: UInt64[np.ndarray, " n"]) -> list[UInt64[np.ndarray, "n _"]]:
        """The words of each stream; words of one position are contiguous over the indices."""
        blocks = len(self._block)
        if len(index) == 1 and blocks <= _FEW:
            table = self._one(int(index[0])).reshape(4 * blocks, 1)
        else:
            table = np.empty((blocks, 4, len(index)), dtype=np.uint64)
            counter = _counter(self._block[:, None], 0, index)
            for position, word in enumerate(philox(counter, self._keys[..., None])):
                table[:, position] = word
            table = table.reshape(4 * blocks, len(index))
        return [table[part].T for part in self._parts]

    def _one(self, index: int) -> UInt64[np.ndarray, "block 4"]:
        """Philox by long arithmetic: a Python integer holds a word of all blocks, in 64-bit lanes.

        A product of two 32-bit numbers fills its lane and does not reach the next. Ten rounds
        take fewer microseconds than ten rounds of numpy's calls.
        """
        block, ones, low, keys = self._lanes
        f0, f2 = _FACTORS
        x0, x1, x2, x3 = block, 0, (index & _LOW) * ones, (index >> 32) * ones
        for k0, k1 in keys:
            x0, x2 = x0 * f0, x2 * f2
            x0, x1, x2, x3 = (x2 >> 32 ^ x1 ^ k0) & low, x2, (x0 >> 32 ^ x3 ^ k1) & low, x0
        size = 8 * len(self._block)
        data = b"".join([x.to_bytes(size, "little") for x in (x0, x1 & low, x2, x3 & low)])
        return np.asarray(np.frombuffer(data, _U8).reshape(4, -1).T)

    @cached_property
    def _lanes(self) -> tuple[int, int, int, list[tuple[int, int]]]:
        """Packed: block numbers, a 1 in each lane, its low half, the keys of each round."""

        def pack(values: np.ndarray) -> int:
            return int.from_bytes(values.astype("<u8").tobytes(), "little")

        ones = pack(np.ones_like(self._block))
        rounds = np.arange(10, dtype=np.uint32)[:, None, None]
        keys = self._keys + rounds * np.array(_WEYL, dtype=np.uint32)[:, None]  # modulo 2**32
        return pack(self._block), ones, _LOW * ones, [(pack(k0), pack(k1)) for k0, k1 in keys]


def span(start: int, count: int) -> UInt64[np.ndarray, " count"]:
    """Indices start, start + 1, ..., start + count - 1 of a batch of draws."""
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
    drawn: UInt64[np.ndarray, "n size"] | None = None,
) -> UInt64[np.ndarray, "n size"]:
    """Integers in 0..bound-1, exactly uniform, for each index and each bound below 2**32.

    Lemire's method: the high half of word x bound, unless the low half falls into the part that
    would make some values likelier; then the word of the next attempt decides.
    `drawn` holds the words of the first attempt, if `Words` has drawn them already.
    """
    if drawn is None:
        drawn = words(seed, stream, index, bounds.shape[1])
    product = drawn * bounds
    biased = (product & np.uint64(_LOW)) < bounds  # perhaps: the exact limit costs a division
    if np.count_nonzero(biased):
        excess, attempt = np.uint64(2**32) % bounds, 0
        while (biased := (product & np.uint64(_LOW)) < excess).any():
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
    """Standard normal draws of a stream, drawn in blocks: a single draw costs as much as many."""

    def __init__(self, stream: str, block: int = 64) -> None:
        self.stream, self.block = stream, block
        self._drawn: tuple[tuple[int, int, int], Tensor] | None = None

    def __call__(self, seed: int, start: int, count: int, size: int) -> Float[Tensor, "count size"]:
        """Return the same as `normal` for this stream."""
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
