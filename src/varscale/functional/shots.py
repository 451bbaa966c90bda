"""How the scale of a class depends on its number of supports; numbered as in `docs/method.md`."""

from jaxtyping import Float
from torch import Tensor


def shot_factor(
    count: Float[Tensor, "*batch way"], offset: Float[Tensor, ""] | float
) -> Float[Tensor, "*batch way"]:
    r"""Share of the full scale that applies to a class with `count` supports (M23).

    $f_k = \frac{n_k}{n_k + b}$, with $b > 0$: a prototype of few supports is itself uncertain, so
    distances to it say less.

    Example:
        >>> import torch
        >>> shot_factor(torch.tensor([1.0, 3.0]), 0.5)
        tensor([0.6667, 0.8571])
    """
    return count / (count + offset)


def temper(
    logits: Float[Tensor, "*batch query way"], factor: Float[Tensor, "*#batch #query way"]
) -> Float[Tensor, "*batch query way"]:
    r"""Multiply the scores of each class by its own factor, about the mean score (M24).

    $\ell'_{jk} = f_k \big( \ell_{jk} - \tfrac1K \sum_i \ell_{ji} \big)$

    A softmax does not depend on the origin of the scores, but a factor per class does. A class with
    few supports should get less extreme scores, so its score moves towards the mean of the query's
    scores. If all factors are equal, this is $f \ell$ up to a constant.

    Example:
        >>> import torch
        >>> temper(torch.tensor([[4.0, 0.0]]), torch.tensor([[0.5, 1.0]])).tolist()
        [[1.0, -2.0]]
    """
    return factor * (logits - logits.mean(-1, keepdim=True))
