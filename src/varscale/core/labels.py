"""Check, number and count the class labels of tasks."""

import math

import numpy as np
import torch
from jaxtyping import Int, Integer, Shaped
from torch import Tensor

from varscale.core.tensors import is_readable


def check_labels(labels: Integer[Tensor, "*shape"], n_way: int, *, role: str) -> None:
    """Raise ValueError if n_way is below 2, or a label is not an integer in 0..n_way-1.

    Values are checked only on the CPU.
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
    """Raise ValueError as `check_labels` does, and if a class has no support."""
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


def number_classes(labels: Shaped[np.ndarray, " item"]) -> Int[np.ndarray, " item"]:
    """Number the classes from 0 without gaps, in sorted order."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def class_counts(
    labels: Integer[Tensor, "*task support"], n_way: int
) -> Integer[Tensor, "*task way"]:
    """Number of supports of each class."""
    rows = class_row(labels, n_way)
    return count_rows(rows, math.prod(labels.shape[:-1]) * n_way).view(*labels.shape[:-1], n_way)


def class_row(labels: Integer[Tensor, "*task support"], n_way: int) -> Integer[Tensor, " rows"]:
    """Row t * n_way + k for class k of task t, so that one indexed sum serves all tasks."""
    *task, _ = labels.shape
    n_tasks = math.prod(task)
    if n_tasks == 1:
        return labels.long().flatten()
    offset = torch.arange(0, n_way * n_tasks, n_way, device=labels.device)
    return (labels.long() + offset.view(*task, 1)).flatten()


def count_rows(rows: Tensor, n_rows: int) -> Tensor:
    """Count how often each row occurs, without reading the largest as `bincount` does."""
    return rows.new_zeros(n_rows).index_add_(0, rows, torch.ones_like(rows))
