"""Extras: packages that only some parts of varscale need."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Say which extra to install if a package that is imported here is not there.

    Args:
        extra: The extra that brings the packages.
        what: What needs them, as the subject of a sentence.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).startswith("varscale"):
            raise  # a mistake of ours
        raise ValueError(f"{what} needs {error.name}: pip install 'varscale[{extra}]'.") from error
