"""Reading the pickles that are in circulation, and nothing that a pickle could do besides."""

import io
import pickle
from typing import Any

_ADMITTED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),  # how Python 2 strings come through
}


class _ArraysOnly(pickle.Unpickler):
    def __init__(self, content: bytes, where: str, encoding: str) -> None:
        super().__init__(io.BytesIO(content), encoding=encoding)
        self.where = where

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise ValueError(
                f"{self.where} asks for {module}.{name}: a dataset has only numpy arrays and plain "
                "containers. The file was not loaded; do not trust its source."
            )
        return super().find_class(module, name)


def read_pickle(content: bytes, where: str, encoding: str = "latin1") -> Any:
    """The arrays and plain containers in a pickle; anything else is refused before it runs.

    Args:
        content: The pickle.
        where: What to call it in messages.
        encoding: Of Python 2 strings: `latin1` makes them text, `bytes` leaves them bytes.
    """
    try:
        return _ArraysOnly(content, where, encoding).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError, TypeError) as e:
        raise ValueError(f"{where} is no readable pickle: {e}. Copy it again.") from e
