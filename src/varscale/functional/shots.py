"""How the number of examples of a class enters its scale; numbered as in `docs/method.md`."""

from jaxtyping import Float
from torch import Tensor


def shot_factor(
    count: Float[Tensor, "*batch way"], offset: Float[Tensor, ""] | float
) -> Float[Tensor, "*batch way"]:
    r"""What share of the full scale a class of so many supports deserves (M23).

    $f_k = \frac{n_k}{n_k + b}$, with $b > 0$: a prototype of few supports is itself uncertain, so
    distances to it say less.

    Example:
        >>> import torch
        >>> shot_factor(torch.tensor([1.0, 3.0]), 0.5)
        tensor([0.6667, 0.8571])
    """
    return count / (count + offset)


def temper(
    logits: Float[Tensor, "*batch query way"], factor: Float[Tensor, "*#batch 1 way"]
) -> Float[Tensor, "*batch query way"]:
    r"""Class scores, each with a share of the scale of its own (M24).

    $\ell'_{jk} = f_k \big( \ell_{jk} - \tfrac1K \sum_i \ell_{ji} \big)$

    A softmax knows no origin of scores, but a factor per class does: a class of few supports is to
    say less both for and against itself, so its score moves towards the mean of the query's scores.
    Where all factors are equal, this is $f \ell$ up to a constant.

    Example:
        >>> import torch
        >>> tempered(torch.tensor([[4.0, 0.0]]), torch.tensor([[0.5, 1.0]])).tolist()
        [[1.0, -2.0]]
    """
    return factor * (logits - logits.mean(-1, keepdim=True))
