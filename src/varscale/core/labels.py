"""Class labels of tasks: what is refused."""

import numpy as np
import torch
from jaxtyping import Int, Integer, Shaped
from torch import Tensor

from varscale.alignment import is_readable
from varscale.pooling import class_counts


def check_labels(labels: Integer[Tensor, "*shape"], n_way: int, *, role: str) -> None:
    """Refuse a task of fewer than two classes, and labels outside 0..n_way-1.

    Values are looked at on the CPU alone.
    """
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"Expected integer {role} labels, got {labels.dtype}.")
    if n_way < 2:
        raise ValueError(f"Expected at least 2 classes per task, got n_way={n_way}.")
    if labels.numel() == 0 or not is_readable(labels):
        return
    low, high = labels.aminmax()
    if low < 0 or high >= n_way:
        raise ValueError(
            f"Expected {role} labels in 0..{n_way - 1} for {n_way} classes, "
            f"got {int(low)}..{int(high)}. Relabel the classes of each task from 0."
        )


def check_support(labels: Integer[Tensor, "*task support"], n_way: int) -> None:
    """Refuse what `check_labels` does, and a class without a support."""
    check_labels(labels, n_way, role="support")
    if not is_readable(labels):
        return
    count = class_counts(labels, n_way)
    if not count.all():
        missing = int((count == 0).nonzero()[0, -1])
        raise ValueError(
            f"Expected at least one support for each of {n_way} classes, got none for class "
            f"{missing}. Add a support, or lower n_way and relabel the classes from 0."
        )


def numbered(labels: Shaped[np.ndarray, " item"]) -> Int[np.ndarray, " item"]:
    """Classes numbered from 0 without a gap, in sorted order."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
