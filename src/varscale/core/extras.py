"""Extras: packages that only some parts of varscale need."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Say which extra to install if what is imported here is not there.

    Args:
        extra: The extra that brings the packages.
        what: What needs them, as the subject of a sentence.
    """
    try:
        yield
    except ImportError as error:
        raise ValueError(
            f"{what} needs {error.name or error}: pip install 'varscale[{extra}]'."
        ) from error
