"""Read pickled datasets safely: arrays and plain containers, nothing else.

No class or function that a pickle names is ever called. The few that arrays need are replaced by
the stand-ins below, which accept only plain bytes of plain numbers.

A few hundred bytes can stand for 2^40 objects: a list that holds another list twice, forty levels
deep. So shared objects are visited once, and instructions, depth and bytes are limited.
"""

import io
import math
import pickle
import pickletools
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np

MAX_STEPS = 1_000_000
"""Limit of instructions, and of members, of a pickle; CIFAR-100, the longest, has 200,000."""
MAX_DEPTH = 50
"""Limit of nested containers. Published files have three levels."""


class _Dtype:
    """Stands in for `numpy.dtype`: numbers and fixed strings, in either byte order."""

    def __init__(self, kind: Any, *_: Any) -> None:
        if not isinstance(kind, str) or not re.fullmatch(r"[<>|=]?[biufSU]\d{1,6}", kind):
            raise ValueError(f"has an array of {_short(kind)}")
        self.dtype = np.dtype(kind)

    def __setstate__(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands in for an array until all of the pickle is read."""

    def __init__(self, *_: Any) -> None:
        self.array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, raw = state
        self.fill(raw, dtype, shape, "F" if is_fortran else "C")

    def fill(self, raw: Any, dtype: Any, shape: Any, order: Literal["C", "F"]) -> "_Array":
        if isinstance(raw, str):  # Python 2's bytes
            raw = raw.encode("latin1")
        if not isinstance(raw, bytes | bytearray) or not isinstance(dtype, _Dtype):
            raise ValueError("has an array without plain content")
        if not isinstance(shape, list) or any(type(size) is not int for size in shape):
            raise ValueError("has an array whose shape is not a list of whole numbers")
        if math.prod(shape) * dtype.dtype.itemsize != len(raw):
            raise ValueError("has an array whose shape does not fit its content")
        self.array = np.frombuffer(raw, dtype.dtype).reshape(shape, order=order)
        return self


def _scalar(dtype: Any, raw: Any) -> Any:
    value = _Array().fill(raw, dtype, [1], "C").array
    assert value is not None
    return value[0]


def _frombuffer(raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    return _Array().fill(raw, dtype, shape, "F" if order == "F" else "C")


def _encode(text: Any, codec: Any) -> bytes:
    if not isinstance(text, str) or codec != "latin1":
        raise ValueError(f"has text in the codec {_short(codec)}")
    return text.encode("latin1")


def _bytes(*content: Any) -> bytes:
    if content:
        raise ValueError("calls bytes with arguments")
    return b""


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _bytes,
    ("builtins", "bytes"): _bytes,
    ("collections", "OrderedDict"): OrderedDict,
}
for _core in ("numpy.core", "numpy._core"):
    _STAND_INS[f"{_core}.multiarray", "_reconstruct"] = _Array
    _STAND_INS[f"{_core}.multiarray", "scalar"] = _scalar
    _STAND_INS[f"{_core}.numeric", "_frombuffer"] = _frombuffer


class _Tuple(list[Any]):
    """Stands in for a tuple, but not as a key: hashing nested tuples may take for ever or crash."""

    def __hash__(self) -> int:  # type: ignore[override]
        raise ValueError("expected names or numbers as keys, got a tuple")


class _ArraysOnly(pickle._Unpickler):
    """Unpickler written in Python rather than C, because its instructions can be replaced."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]]

    def __init__(self, content: bytes, encoding: str) -> None:
        super().__init__(io.BytesIO(content), encoding=encoding)
        self.steps = 0
        self.bytes_left = 2 * len(content)  # text becomes bytes, and bytes become an array

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise ValueError(
                f"asks for {_short(module, plain=True)}.{_short(name, plain=True)}, but a "
                "dataset has only arrays and plain containers"
            )
        return _STAND_INS[module, name]

    def spend(self, made: Any) -> None:
        """Count the bytes that a stand-in has made, which the size of the file limits."""
        made = made.array if isinstance(made, _Array) else made
        size = made.nbytes if isinstance(made, np.ndarray | np.generic) else 0
        self.bytes_left -= len(made) if isinstance(made, bytes | OrderedDict) else size
        if self.bytes_left < 0:
            raise ValueError("expected arrays as large as the file, got the same bytes repeated")


def _tuple(self: Any) -> None:
    items = self.pop_mark()
    self.append(_Tuple(items))


def _tuple_of(n: int) -> Callable[[Any], None]:
    def make(self: Any) -> None:
        items = [self.stack.pop() for _ in range(n)]
        self.append(_Tuple(reversed(items)))

    return make


def _bytearray(self: Any) -> None:
    """Read the bytes that exist; pickle's own code allocates as many as the file claims."""
    size = int.from_bytes(self.read(8), "little")
    self.append(self.read(size))


def _count_bytes(step: Callable[[Any], None]) -> Callable[[Any], None]:
    def run(self: Any) -> None:
        step(self)
        self.spend(self.stack[-1])

    return run


def _count_steps(name: str, step: Callable[[Any], None] | None) -> Callable[[Any], None]:
    def run(self: Any) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise ValueError(f"expected at most {MAX_STEPS:,} instructions, got more")
        if step is None:
            raise ValueError(f"has the instruction {name}, which arrays and lists do not need")
        step(self)

    return run


_OTHERS = (
    "EMPTY_SET", "ADDITEMS", "FROZENSET", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2",
    "EXT4", "PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER",
)  # fmt: skip
"""Instructions that arrays, lists and dictionaries do not need."""
_own = pickle._Unpickler.dispatch
_STEPS: dict[str, Callable[[Any], None]] = {
    **{o.name: _own[ord(o.code)] for o in pickletools.opcodes if o.name not in _OTHERS},
    "TUPLE": _tuple,
    "EMPTY_TUPLE": _tuple_of(0),
    **{f"TUPLE{n}": _tuple_of(n) for n in (1, 2, 3)},
    "BYTEARRAY8": _bytearray,
    "REDUCE": _count_bytes(_own[pickle.REDUCE[0]]),
    "BUILD": _count_bytes(_own[pickle.BUILD[0]]),
}
_ArraysOnly.dispatch = {
    **{code: _count_steps(f"{code:#x}", None) for code in range(256)},
    **{ord(o.code): _count_steps(o.name, _STEPS.get(o.name)) for o in pickletools.opcodes},
}


def read_pickle(content: bytes, where: str, encoding: str = "latin1") -> Any:
    """Read the arrays and plain containers in a pickle, and never execute anything in it.

    Anything else in the pickle raises ValueError.

    Args:
        content: The pickle.
        where: Name of the pickle in messages.
        encoding: Encoding of Python 2 strings: `latin1` makes them text, `bytes` leaves them bytes.
    """
    try:
        return _resolve(_ArraysOnly(content, encoding).load(), MAX_DEPTH, {})[0]
    except Exception as error:  # a broken or hostile file may raise anything
        why = "it ends too early" if isinstance(error, EOFError) else str(error) or repr(error)
        raise ValueError(
            f"{where} was not loaded: {why}. Get it again from a source you trust."
        ) from error


def _resolve(value: Any, depth: int, known: dict[int, tuple[Any, int]]) -> tuple[Any, int]:
    """Replace stand-ins by their arrays; also count the members that a walk would visit."""
    if isinstance(value, _Array):
        if value.array is None:
            raise ValueError("has an array without content")
        return value.array, 1
    if not isinstance(value, dict | list):
        return value, 1
    if not depth:
        raise ValueError(f"expected at most {MAX_DEPTH} containers in each other, got more")
    if id(value) not in known:  # visit shared objects once
        entries = value.values() if isinstance(value, dict) else value
        real = [_resolve(entry, depth - 1, known) for entry in entries]
        size = 1 + sum(n for _, n in real)
        if size > MAX_STEPS:
            raise ValueError(f"expected at most {MAX_STEPS:,} members, got more")
        members = [member for member, _ in real]
        made = dict(zip(value, members, strict=True)) if isinstance(value, dict) else members
        known[id(value)] = made, size
    return known[id(value)]


def _short(value: Any, *, plain: bool = False) -> str:
    """Shorten text of a file for a message; anything else, which may be endless, is its type."""
    if not isinstance(value, str):
        return f"a {type(value).__name__}"
    value = value if len(value) <= 60 else f"{value[:60]}..."
    return value if plain else repr(value)
