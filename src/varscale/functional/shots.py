"""How the scores of a class depend on its number of supports; numbered as in `docs/method.md`."""

import torch
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


def own_similarity(
    count: Float[Tensor, "*#batch"], scatter: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*batch"]:
    r"""Cosine to expect of an item and the mean of `count` others of its class (M49).

    $R_n = \big[ (1 + \beta) (1 + \beta / n) \big]^{-1/2}$. The item is its class plus noise of
    variance $\beta$, the mean its class plus noise of variance $\beta / n$, where the variance
    between classes is 1. In many dimensions their lengths hardly vary.

    Example:
        >>> import torch
        >>> own_similarity(torch.tensor([1.0, 3.0]), torch.tensor(1.0))
        tensor([0.5000, 0.6124])
    """
    return ((1 + scatter) * (1 + scatter / count)).rsqrt()


def shot_bias(
    count: Float[Tensor, "*#batch"],
    offset: float,
    scatter: Float[Tensor, "*#batch"],
    share: Float[Tensor, "*#batch"] | float = 0.0,
) -> Float[Tensor, "*batch"]:
    r"""What the score of a class is lowered by, at a scale of 1, for its supports (M49).

    $f_n R_n \big( \tfrac12 - \eta \tfrac\beta n \big)$: the similarity at which the odds are even,
    times the factor of M23.

    Args:
        count: Supports $n$.
        offset: $b$ of M23.
        scatter: $\beta$, the variance within classes in units of that between them. Infinite if it
            is not known: then nothing is taken.
        share: $\eta$, the share of the class mean in the origin.
    """
    known = scatter.isfinite()
    scatter = torch.where(known, scatter, 0.0)
    even = own_similarity(count, scatter) * (0.5 - share * scatter / count)
    return torch.where(known, shot_factor(count, offset) * even, 0.0)


def shot_scores(
    cosine: Float[Tensor, "*batch query way"],
    count: Float[Tensor, "*#batch #query way"],
    offset: float,
    scatter: Float[Tensor, "*#batch"],
    share: Float[Tensor, "*#batch"] | float = 0.0,
) -> Float[Tensor, "*batch query way"]:
    r"""Scores, at a scale of 1, of classes with different numbers of supports (M49).

    $\ell_{jk} = f_k \big( s_{jk} - \tfrac1K \sum_i s_{ji} \big)$ (M24) less `shot_bias`. A query
    resembles the mean of many examples more than that of a few, even if both classes fit it equally
    well. With equal supports, this is M24 up to a constant.

    Args:
        cosine: Similarities $s$ of queries and class means.
        count: Supports $n_k$, for each query if they differ.
        offset: $b$ of M23.
        scatter: $\beta$ of `shot_bias`.
        share: $\eta$ of `shot_bias`.
    """
    if isinstance(share, Tensor):
        share = share[..., None, None]
    bias = shot_bias(count, offset, scatter[..., None, None], share)
    return temper(cosine, shot_factor(count, offset)) - bias
