"""Reading the pickles that are in circulation: arrays and plain containers, nothing else.

No class or function that a pickle names is ever called. The few that arrays need are replaced by
stand-ins below, which take plain bytes of plain numbers and check what they are given.
"""

import io
import math
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import numpy as np


class _Dtype:
    """Stands in for `numpy.dtype`: numbers and fixed strings, in either byte order."""

    def __init__(self, kind: Any, *_: Any) -> None:
        if not isinstance(kind, str) or not re.fullmatch(r"[<>|=]?[biufSU]\d{1,6}", kind):
            raise ValueError(f"an array of {kind!r}")
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
            raise ValueError("an array without plain content")
        if math.prod(shape) * dtype.dtype.itemsize != len(raw):
            raise ValueError("an array whose shape does not fit its content")
        self.array = np.frombuffer(raw, dtype.dtype).reshape(shape, order=order)
        return self


def _scalar(dtype: Any, raw: Any) -> Any:
    value = _Array().fill(raw, dtype, (1,), "C").array
    assert value is not None
    return value[0]


def _frombuffer(raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    return _Array().fill(raw, dtype, shape, "F" if order == "F" else "C")


def _encode(text: Any, codec: Any) -> bytes:
    if not isinstance(text, str) or codec != "latin1":
        raise ValueError(f"text in the codec {codec!r}")
    return text.encode("latin1")


def _bytes(*content: Any) -> bytes:
    if content:
        raise ValueError("bytes made of something")
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


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise ValueError(
                f"asks for {module}.{name}, where a dataset has arrays and plain containers only; "
                "do not trust its source"
            )
        return _STAND_INS[module, name]


def read_pickle(content: bytes, where: str, encoding: str = "latin1") -> Any:
    """The arrays and plain containers in a pickle; anything else is refused and never runs.

    Args:
        content: The pickle.
        where: What to call it in messages.
        encoding: Of Python 2 strings: `latin1` makes them text, `bytes` leaves them bytes.
    """
    try:
        return _real(_ArraysOnly(io.BytesIO(content), encoding=encoding).load())
    except Exception as error:  # whatever a broken or hostile file can provoke
        raise ValueError(f"{where} was not loaded: {error}.") from error


def _real(value: Any) -> Any:
    """The value with stand-ins replaced by their arrays."""
    if isinstance(value, _Array):
        if value.array is None:
            raise ValueError("an array without content")
        return value.array
    if isinstance(value, dict):
        return {key: _real(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_real(entry) for entry in value)
    return value
