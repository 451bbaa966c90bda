"""Sums within classes. Labels are taken to be right, so that nothing is read back from a device.

`labels.check_support` looks at them, once, where they come in.
"""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.alignment import wide


def class_counts(
    labels: Integer[Tensor, "*task support"], n_way: int
) -> Integer[Tensor, "*task way"]:
    """Supports per class."""
    rows = class_row(labels, n_way)
    return _counts(rows, math.prod(labels.shape[:-1]) * n_way).view(*labels.shape[:-1], n_way)


def class_means(
    support: Float[Tensor, "*task support dim"],
    labels: Integer[Tensor, "*task support"],
    n_way: int,
) -> Float[Tensor, "*task way dim"]:
    """What `functional.prototypes` gives (M1); a class without a support has NaN."""
    support = wide(support)
    *task, _, dim = support.shape
    rows, n_rows = class_row(labels, n_way), math.prod(task) * n_way
    total = support.new_zeros(n_rows, dim).index_add_(0, rows, support.reshape(-1, dim))
    return total.div_(_counts(rows, n_rows).unsqueeze(-1)).view(*task, n_way, dim)


def class_logsumexp(
    similarity: Float[Tensor, "*task query support"],
    labels: Integer[Tensor, "*#task support"],
    n_way: int,
) -> Float[Tensor, "*task query way"]:
    """What `functional.attention_logits` gives (M9)."""
    similarity = wide(similarity)
    index = labels.long().unsqueeze(-2).expand_as(similarity)  # (*task, query, support)
    shape = (*similarity.shape[:-1], n_way)
    peak = similarity.new_full(shape, -torch.inf)
    peak = peak.scatter_reduce(-1, index, similarity.detach(), "amax")  # (*task, query, way)
    mass = (similarity - peak.gather(-1, index)).exp()
    return peak + similarity.new_zeros(shape).scatter_add(-1, index, mass).log()


def class_row(labels: Integer[Tensor, "*task support"], n_way: int) -> Integer[Tensor, " rows"]:
    """Class k of task t as row t * n_way + k, so that one indexed sum serves all tasks."""
    *task, _ = labels.shape
    n_tasks = math.prod(task)
    if n_tasks == 1:
        return labels.long().flatten()
    offset = torch.arange(0, n_way * n_tasks, n_way, device=labels.device)
    return (labels.long() + offset.view(*task, 1)).flatten()


def _counts(rows: Tensor, n_rows: int) -> Tensor:
    """How often each row occurs; `bincount` would read the largest."""
    return rows.new_zeros(n_rows).index_add_(0, rows, torch.ones_like(rows))
