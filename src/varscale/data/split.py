"""Splits by class: train, val and test classes are disjoint."""

import hashlib
from collections.abc import Iterable, Sequence

SPLITS = ("train", "val", "test")


def check_names(names: Iterable[str], what: str, source: object) -> None:
    """Raise ValueError if a name of some `what` of a source cannot be written as UTF-8."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"Expected the name of every {what} of {source} in UTF-8, got {name!a}. Rename it."
            ) from None


def check_two(classes: Iterable[str], source: object) -> None:
    """Raise ValueError if there are fewer than two classes."""
    names = set(classes)
    if len(names) < 2:
        found = f"only {names.pop()!r}" if names else "none"
        raise ValueError(
            f"Expected at least two classes in {source}, because a task needs two, got {found}. "
            "Add classes."
        )


def split_classes(class_names: Sequence[str], shares: str, seed: int) -> dict[str, str]:
    """Assign classes to splits by a seed; the result depends only on the seed and the names.

    Args:
        class_names: Distinct names.
        shares: Shares of train, val and test, such as `64/16/20` or `0.8/0/0.2`.
        seed: Seed.

    Example:
        >>> split_classes(["ant", "bee", "cat", "dog", "eel"], "3/1/1", seed=0)
        {'ant': 'train', 'bee': 'test', 'cat': 'val', 'dog': 'train', 'eel': 'train'}
    """
    try:
        parts = [float(part) for part in shares.split("/")]
    except ValueError:
        parts = []
    if len(parts) != 3 or min(parts) < 0 or not 0 < sum(parts) < float("inf"):
        raise ValueError(
            f"Expected shares of train/val/test classes such as 64/16/20, got {shares!r}."
        )

    def rank(name: str) -> bytes:
        return hashlib.blake2b(f"{seed}/{name}".encode()).digest()

    order = sorted(set(class_names), key=rank)
    edges = [round(len(order) * sum(parts[: i + 1]) / sum(parts)) for i in range(3)]
    home = {
        name: SPLITS[sum(place >= edge for edge in edges[:2])] for place, name in enumerate(order)
    }
    return {name: home[name] for name in class_names}
