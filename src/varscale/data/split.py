"""Splits by class: train, val and test classes are disjoint."""

from collections.abc import Sequence

import numpy as np

from varscale.random import span, words

SPLITS = ("train", "val", "test")


def seeded_split(class_names: Sequence[str], shares: str, seed: int) -> dict[str, str]:
    """Assign whole classes to splits, by a seed and the class names alone.

    Args:
        class_names: Distinct names.
        shares: Shares of train, val and test, such as `64/16/20` or `0.8/0/0.2`.
        seed: Seed.

    Example:
        >>> seeded_split(["ant", "bee", "cat", "dog", "eel"], "3/1/1", seed=0)
        {'ant': 'test', 'bee': 'train', 'cat': 'train', 'dog': 'train', 'eel': 'val'}
    """
    try:
        parts = [float(part) for part in shares.split("/")]
    except ValueError:
        parts = []
    if len(parts) != 3 or min(parts) < 0 or not 0 < sum(parts) < float("inf"):
        raise ValueError(
            f"Expected shares of train/val/test classes such as 64/16/20, got {shares!r}."
        )
    n = len(class_names)
    edges = [round(n * sum(parts[: i + 1]) / sum(parts)) for i in range(3)]
    # Names are sorted by random words; a tie of 64 bits would fall back on the name.
    keys = words(seed, "split", span(0, n), 2)
    order = np.lexsort((np.argsort(np.argsort(class_names)), keys[:, 1], keys[:, 0]))
    rank = np.argsort(order)
    home = [SPLITS[int(np.searchsorted(edges, r, side="right"))] for r in rank]
    return dict(zip(class_names, home, strict=True))
