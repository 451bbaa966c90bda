"""Class labels of tasks: what is refused, and how they are counted."""

import math

import numpy as np
import torch
from jaxtyping import Int, Integer, Shaped
from torch import Tensor


def check_labels(labels: Integer[Tensor, "*shape"], n_way: int, *, role: str) -> None:
    """Refuse a task of fewer than two classes, and labels outside 0..n_way-1."""
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"Expected integer {role} labels, got {labels.dtype}.")
    if n_way < 2:
        raise ValueError(f"Expected at least 2 classes per task, got n_way={n_way}.")
    if labels.numel() == 0:
        return
    low, high = labels.aminmax()
    if low < 0 or high >= n_way:
        raise ValueError(
            f"Expected {role} labels in 0..{n_way - 1} for {n_way} classes, "
            f"got {int(low)}..{int(high)}. Relabel the classes of each task from 0."
        )


def class_counts(
    labels: Integer[Tensor, "*task support"], n_way: int
) -> Integer[Tensor, "*task way"]:
    """Supports per class; a class without one is an error."""
    check_labels(labels, n_way, role="support")
    *task, _ = labels.shape
    rows = math.prod(task) * n_way
    count = torch.bincount(class_row(labels, n_way), minlength=rows).view(*task, n_way)
    if not count.all():
        missing = int((count == 0).nonzero()[0, -1])
        raise ValueError(
            f"Expected at least one support for each of {n_way} classes, got none for class "
            f"{missing}. Add a support, or lower n_way and relabel the classes from 0."
        )
    return count


def class_row(labels: Integer[Tensor, "*task support"], n_way: int) -> Integer[Tensor, " rows"]:
    """Class k of task t as row t * n_way + k, so that one indexed sum serves all tasks."""
    *task, _ = labels.shape
    offset = n_way * torch.arange(math.prod(task), device=labels.device)
    return (labels.long() + offset.view(*task, 1)).flatten()


def numbered(labels: Shaped[np.ndarray, " item"]) -> Int[np.ndarray, " item"]:
    """Classes numbered from 0 without a gap, in sorted order."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
