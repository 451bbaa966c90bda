"""Means and sums within classes, without checks, so that nothing is read back from a device.

`core.labels.check_support` checks labels once, where they come in.
"""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.core.labels import class_row, count_rows
from varscale.core.tensors import wide


def class_means(
    support: Float[Tensor, "*task support dim"],
    labels: Integer[Tensor, "*task support"],
    n_way: int,
) -> Float[Tensor, "*task way dim"]:
    """Class means, as `functional.prototypes` (M1); NaN for a class without a support."""
    support = wide(support)
    *task, _, dim = support.shape
    rows, n_rows = class_row(labels, n_way), math.prod(task) * n_way
    total = support.new_zeros(n_rows, dim).index_add_(0, rows, support.reshape(-1, dim))
    count = count_rows(rows, n_rows)
    if torch.compiler.is_exporting():  # a graph masks such a class; NaN would reach the others
        count = count.clamp_min(1)
    return total.div_(count.unsqueeze(-1)).view(*task, n_way, dim)


def class_logsumexp(
    similarity: Float[Tensor, "*task query support"],
    labels: Integer[Tensor, "*#task support"],
    n_way: int,
) -> Float[Tensor, "*task query way"]:
    """Log of sums of exponentials within classes, as `functional.attention_logits` (M9)."""
    similarity = wide(similarity)
    index = labels.long().unsqueeze(-2).expand_as(similarity)  # (*task, query, support)
    shape = (*similarity.shape[:-1], n_way)
    peak = similarity.new_full(shape, -torch.inf)
    peak = peak.scatter_reduce(-1, index, similarity.detach(), "amax")  # (*task, query, way)
    mass = (similarity - peak.gather(-1, index)).exp()
    return peak + similarity.new_zeros(shape).scatter_add(-1, index, mass).log()
