"""Let unlabelled queries tell where their classes lie, and how frequent they are (M44)."""

import torch
from jaxtyping import Float
from torch import Tensor

from varscale.functional.prototypes import EPS
from varscale.functional.shots import shot_scores
from varscale.functional.task import average_softmax, likeliest_factor

STEPS = 10
"""Steps of expectation and maximisation."""
CONCENTRATION = 5.0
"""Of the Dirichlet prior of class proportions: queries of a class that are seen in advance."""


def transduce(
    query: Float[Tensor, "*task query dim"],
    means: Float[Tensor, "*task way dim"],
    count: Float[Tensor, "*task way"],
    correction: Float[Tensor, "*task way dim"],
    intercept: Float[Tensor, "*task way"],
    alpha: Float[Tensor, "*task"],
    std: Float[Tensor, "*task"],
    scatter: Float[Tensor, "*task"],
    share: Float[Tensor, "*task"],
    offset: float,
    power: float,
    typical: float,
    *,
    steps: int = STEPS,
) -> Float[Tensor, "*task query way"]:
    r"""Probabilities of queries that serve as examples of each other (M44).

    A query $x_j$ counts as $p_{jk}$ examples of class $k$. For its own score it is left out:

    $\ell_{jk} = \alpha \cos\big(x_j,\ n_k c_k + \sum_{i \ne j} p_{ik} x_i\big) + v_k^\top \hat x_j
    + u_k + \log \pi_{jk}$ with $\pi_{jk} \propto a + \sum_{i \ne j} p_{ik}$,

    with the laws of shots (M23, M49) and queries (M41) as before.

    Args:
        query: Queries, from the origin of the task.
        means: Class means, from there.
        count: Examples of each class.
        correction: Corrections $v_k$ of the class weights.
        intercept: Corrections $u_k$ of the scores.
        alpha: The scale.
        std: How uncertain it is, as a standard deviation of its logarithm (M39).
        scatter: Variance within classes, in units of that between them (M49).
        share: Share of each class mean in the origin (M49).
        offset: Of the shot law.
        power: Of the query's factor.
        typical: Similarity at which that factor is 1.
        steps: Steps of the iteration; with none, queries say nothing of each other.
    """
    square = query.square().sum(-1, keepdim=True)
    length = square.sqrt().clamp_min(EPS)
    moved = query / length @ correction.mT + intercept.unsqueeze(-2)
    p = torch.zeros_like(moved)
    for _ in range(steps + 1):
        others = p.sum(-2, keepdim=True) - p  # (*task, query, way)
        total = count.unsqueeze(-1) * means + p.mT @ query
        cross = query @ total.mT
        norm = total.square().sum(-1).unsqueeze(-2) - 2 * p * cross + p.square() * square
        cosine = (cross - p * square) / (norm.clamp_min(EPS**2).sqrt() * length)
        scores = shot_scores(cosine, count.unsqueeze(-2) + others, offset, scatter, share)
        scores = alpha[..., None, None] * scores + moved
        scores = scores * likeliest_factor(cosine, scores, power, typical)
        p = average_softmax(scores, std, (CONCENTRATION + others).log())
    return p
