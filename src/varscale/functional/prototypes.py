"""Class means, unit vectors, task means and attention; numbered as in `docs/method.md`."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.core.labels import check_support
from varscale.core.tensors import is_readable, wide
from varscale.functional.pooling import class_logsumexp, class_means

EPS = 1e-12
"""Largest norm of a vector that counts as zero."""


def prototypes(
    support: Float[Tensor, "*task support dim"],
    labels: Integer[Tensor, "*task support"],
    n_way: int,
) -> Float[Tensor, "*task way dim"]:
    r"""Class means, for any number of supports per class (M1).

    $c_k = \frac{1}{N_k} \sum_{i : y_i = k} \phi(x_i)$

    Example:
        >>> support = torch.tensor([[0.0, 2.0], [4.0, 0.0], [0.0, 4.0]])
        >>> prototypes(support, torch.tensor([0, 1, 0]), n_way=2).tolist()
        [[0.0, 3.0], [4.0, 0.0]]
    """
    if support.shape[:-1] != labels.shape:
        raise ValueError(
            f"Expected one label per support, shape {tuple(support.shape[:-1])}, "
            f"got {tuple(labels.shape)}."
        )
    check_support(labels, n_way)
    return class_means(support, labels, n_way)


def normalize(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    r"""Normalise vectors to unit length (M2): $\hat x = x / \lVert x \rVert$, and $\hat 0 = 0$.

    The gradient at a zero vector is zero, where dividing by `max(norm, eps)` would give 1/eps.

    Example:
        >>> normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    found = unit(x)
    if found.numel() and is_readable(found) and math.isnan(found.detach()[..., 0].sum().item()):
        return unit(x.double()).to(found.dtype)  # squares may have overflowed in float32
    return found


def unit(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """Normalise embeddings of ordinary size to unit length, without reading any value.

    A norm that overflows gives NaN, which then shows in the loss or in a probability.
    """
    x = wide(x)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    norm = torch.add(norm, norm, alpha=0)  # infinity, which would give zeros, becomes NaN
    return torch.div(x, torch.threshold(norm, EPS, torch.inf))


def task_prototype(
    support: Float[Tensor, "*task support dim"], query: Float[Tensor, "*task query dim"] | None
) -> Float[Tensor, "*task dim"]:
    r"""Mean embedding of a task, the input of D-AVS (M3).

    With `query`, over supports and (unlabelled) queries, as published, which makes the classifier
    transductive; with `None`, over the supports alone.
    """
    if query is not None:
        support = torch.cat([support, query], dim=-2)
    return support.mean(-2)


def attention_logits(
    similarity: Float[Tensor, "*task query support"],
    labels: Integer[Tensor, "*#task support"],
    n_way: int,
) -> Float[Tensor, "*task query way"]:
    r"""Attention of a matching network, summed within classes (M9).

    $\ell_{jk} = \log \sum_{i : y_i = k} e^{s_{ji}}$, hence
    $\operatorname{softmax}_k \ell_{jk} = \sum_{i : y_i = k} \operatorname{softmax}_i s_{ji}$

    Computed in log space: at the published scale of 100 the plain sum underflows in float32.
    """
    check_support(labels, n_way)
    return class_logsumexp(similarity, labels, n_way)
