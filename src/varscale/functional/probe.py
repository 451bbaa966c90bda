"""Class weights that correct a classifier where it errs on examples left out (M40)."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

STEPS = 100
"""Accelerated gradient steps; more change no probability by a thousandth."""


def fit_probe(
    items: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    offset: Float[Tensor, "*task item way"],
    precision: Float[Tensor, "*#task 1 1"],
    *,
    steps: int = STEPS,
) -> Float[Tensor, "*task way dim"]:
    r"""Fit a correction $v_k$ of the class weights to what the examples' own scores leave (M40).

    $\min_V \sum_i -\log \operatorname{softmax}_{y_i}(o_{ik} + v_k^\top z_i) +
    \tfrac{\lambda}{2} \sum_k \lVert v_k \rVert^2$

    Convex. Nesterov's method for strongly convex functions, over coefficients of the examples where
    they are fewer than dimensions; else over $V$, in float32. As $\lambda \to \infty$, $V \to 0$.

    Args:
        items: Examples $z_i$.
        labels: Their classes.
        offset: Scores $o_{ik}$ of the example without the correction.
        precision: $\lambda$.
        steps: Gradient steps.
    """
    dual, given = items.shape[-2] <= items.shape[-1], items.dtype
    if not dual:
        items, offset, precision = items.float(), offset.float(), precision.float()
    truth = torch.nn.functional.one_hot(labels, offset.shape[-1]).to(items)
    gram = items @ items.mT if dual else items.mT @ items
    # no eigenvalue is above the largest row sum, nor above the norm
    bound = torch.minimum(gram.abs().sum(-1).amax(-1), torch.linalg.matrix_norm(gram))
    bound = bound[..., None, None]
    rate = 1 / (0.5 * bound + precision)
    root = (precision * rate).sqrt()
    momentum = (1 - root) / (1 + root)
    left = gram if dual else items  # scores are offset + left @ coefficients
    now = look = torch.zeros_like(offset if dual else (items.mT @ offset))
    for _ in range(steps):
        residual = torch.softmax(offset + left @ look, -1) - truth
        slope = (residual if dual else items.mT @ residual) + precision * look
        new = look - rate * slope
        look, now = new + momentum * (new - now), new
    return (items.mT @ now if dual else now).mT.to(given)
