"""Choosing among models by classes that none of them was trained on."""

import numpy as np
from jaxtyping import Float, Int


def class_means(
    values: Float[np.ndarray, " item"], classes: Int[np.ndarray, " item"]
) -> Float[np.ndarray, " class"]:
    """Mean value of every class that has items, in order."""
    place = np.unique(classes, return_inverse=True)[1]
    return np.bincount(place, weights=values) / np.bincount(place)


def simplest_good(losses: Float[np.ndarray, "candidate class"]) -> int:
    r"""The first candidate within one standard error of the best; the simplest comes first (M30).

    Classes are the sample: their items resemble each other, and more tasks of the same classes say
    nothing about others. The error is that of a candidate's mean difference from the best, paired
    class by class.

    Args:
        losses: Mean loss of each candidate on the items of each held-out class.

    Example:
        >>> losses = np.array([[0.9, 1.3, 0.8], [0.5, 0.6, 0.5], [0.6, 0.5, 0.4]])
        >>> simplest_good(losses)  # the last one is best, but not by much
        1
    """
    difference = losses - losses[losses.mean(1).argmin()]
    error = difference.std(1, ddof=1) / np.sqrt(losses.shape[1])
    return int(np.argmax(difference.mean(1) <= error))
