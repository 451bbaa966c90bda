"""Choose among models by classes that none of them was trained on."""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


def class_nll(
    tasks: Iterable[tuple[Float[Tensor, "..."], Int[Tensor, "..."], Int[Tensor, "..."]]],
) -> Float[np.ndarray, " class"]:
    """Mean NLL of the queries of every class, in the order of the classes.

    Args:
        tasks: Log-probabilities of queries, (task, query, way), their classes in the task, and
            among all; every part may have a shape of its own.
    """
    losses, classes = [], []
    for log_p, labels, names in tasks:
        losses.append(-log_p.gather(-1, labels.unsqueeze(-1)).double().flatten())
        classes.append(names.flatten())
    place = torch.cat(classes).cpu().unique(return_inverse=True)[1]
    return (torch.bincount(place, torch.cat(losses).cpu()) / torch.bincount(place)).numpy()


def simplest_good(losses: Float[np.ndarray, "candidate class"]) -> int:
    r"""The first candidate within one standard error of the best; the simplest comes first (M30).

    Classes are the sample: their items resemble each other, and more tasks of the same classes say
    nothing about others. The error is that of a candidate's mean difference from the best, paired
    class by class. A candidate with NaN or infinity is out.

    Args:
        losses: Mean loss of each candidate on the items of each held-out class.

    Example:
        >>> losses = np.array([[0.9, 1.3, 0.8], [0.5, 0.6, 0.5], [0.6, 0.5, 0.4]])
        >>> simplest_good(losses)  # the last one is best, but not by much
        1
    """
    (sound,) = np.nonzero(np.isfinite(losses).all(1))
    if not len(sound) or losses.shape[1] < 2:
        raise ValueError(
            "Expected finite losses of at least two held-out classes to choose by, got "
            f"{len(sound)} candidates with finite losses of {losses.shape[1]} classes."
        )
    difference = losses[sound] - losses[sound][losses[sound].mean(1).argmin()]
    error = difference.std(1, ddof=1) / np.sqrt(losses.shape[1])
    return int(sound[np.argmax(difference.mean(1) <= error)])
