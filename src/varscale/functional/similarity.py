"""Scaled metrics as logits (M4-M8), the arguments of the softmax."""

import torch
from jaxtyping import Float
from torch import Tensor

from varscale.core.precision import full_precision
from varscale.core.tensors import WIDE, promote
from varscale.functional.prototypes import normalize


def euclidean_logits(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
    *,
    kappa: float = 0.5,
) -> Float[Tensor, "*task query way"]:
    r"""Scaled squared Euclidean distance as logits, in linear form (M4).

    $\ell_{jk} = -\kappa \sum_m \alpha_m (q_{jm} - c_{km})^2 + \kappa \sum_m \alpha_m q_{jm}^2
    = 2\kappa\, q_j^\top (\alpha \odot c_k) - \kappa \sum_m \alpha_m c_{km}^2$

    The query's own term is the same for every class, so the softmax and all its gradients are
    those of $-\kappa d$; leaving it out saves all passes over (query, dim) except the product. In
    float32 embeddings should be near the origin, as unit vectors are; `center` moves others there.
    `squared_euclidean` computes the full distance.

    Args:
        query: Embedded queries.
        reference: Prototypes or supports to compare them with.
        alpha: The scale.
        kappa: 1/2 as in the released code (on unit vectors the logits then equal the cosine's up
            to a constant), 1 as in the paper's text and for the unscaled prototypical network.
    """
    query, reference, alpha = align(query, reference, alpha)
    weighted = alpha * reference  # (*task, way, dim)
    own = (weighted * reference).sum(-1).unsqueeze(-2)  # (*task, 1, way)
    logits = torch.sub(product(query, weighted), own, alpha=0.5)
    return logits if kappa == 0.5 else 2 * kappa * logits


def dot_logits(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
) -> Float[Tensor, "*task query way"]:
    r"""Scaled inner product (M5): $\ell_{jk} = \sum_m \alpha_m q_{jm} c_{km}$."""
    query, reference, alpha = align(query, reference, alpha)
    return product(query, alpha * reference)


def cosine_logits(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
) -> Float[Tensor, "*task query way"]:
    r"""Scaled cosine (M6): $\ell_{jk} = \sum_m \alpha_m \hat q_{jm} \hat c_{km}$.

    Vectors are normalised before alpha is applied, and not again afterwards.
    """
    return dot_logits(normalize(query), normalize(reference), alpha)


def squared_euclidean(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
) -> Float[Tensor, "*task query way"]:
    r"""Weighted squared distance (M7): $d_{jk} = \sum_m \alpha_m (q_{jm} - c_{km})^2$."""
    query, reference, alpha = align(query, reference, alpha)
    query, reference = center(query, reference)
    weighted = alpha * reference  # (*task, way, dim)
    query_term = (alpha * query.square()).sum(-1).unsqueeze(-1)  # (*task, query, 1)
    reference_term = (weighted * reference).sum(-1).unsqueeze(-2)  # (*task, 1, way)
    return query_term + reference_term - 2 * product(query, weighted)


def norm_logits(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
) -> Float[Tensor, "*task query way"]:
    r"""TADAM's unsquared distance (M8): $\ell_{jk} = -\lVert \alpha \odot (q_j - c_k) \rVert$.

    Here the scale multiplies coordinates, so that a constant vector equals a (positive) scalar.
    The gradient at distance zero is zero.
    """
    query, reference, alpha = align(query, reference, alpha)
    square = squared_euclidean(query, reference, alpha.squeeze(-2).square())
    zero = square <= torch.finfo(square.dtype).tiny
    return -square.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def center(
    query: Float[Tensor, "*#task query dim"], reference: Float[Tensor, "*#task way dim"]
) -> tuple[Float[Tensor, "*#task query dim"], Float[Tensor, "*#task way dim"]]:
    """Move the origin to the mean of the references, which changes no distance.

    What all embeddings share (after a ReLU all are positive) then cancels here, before it can cost
    digits in a product.
    """
    origin = reference.detach().mean(-2, keepdim=True)
    return query - origin, reference - origin


def align(query: Tensor, reference: Tensor, alpha: Tensor | float) -> list[Tensor]:
    """Check shapes, and convert to one dtype and alpha to shape (*task, 1, 1 or dim)."""
    if not isinstance(alpha, Tensor) or alpha.ndim == 0:
        alpha = torch.as_tensor(alpha, dtype=query.dtype, device=query.device).reshape(1)
    if query.ndim < 2 or reference.ndim < 2 or query.shape[-1] != reference.shape[-1]:
        raise ValueError(
            "Expected queries (..., query, dim) and references (..., way, dim) of the same dim, "
            f"got {tuple(query.shape)} and {tuple(reference.shape)}."
        )
    if alpha.shape[-1] not in (1, query.shape[-1]):
        raise ValueError(
            f"Expected a scale whose last axis is 1 or the embedding's {query.shape[-1]}, got "
            f"shape {tuple(alpha.shape)}. One scalar per task has shape (task, 1)."
        )
    tasks = (query.shape[:-2], reference.shape[:-2], alpha.shape[:-1])
    if not (tasks[0] == tasks[1] and tasks[2] in ((), tasks[0])):
        try:
            torch.broadcast_shapes(*tasks)
        except RuntimeError:
            raise ValueError(
                "Expected queries, references and scale of the same tasks, got leading axes "
                f"{', '.join(str(tuple(task)) for task in tasks)}."
            ) from None
    alpha = alpha.unsqueeze(-2)
    if query.dtype == reference.dtype == alpha.dtype and query.dtype in WIDE:
        return [query, reference, alpha]
    return promote(query, reference, alpha)


def product(query: Tensor, weighted: Tensor) -> Tensor:
    """Inner products (*task, query, way), in full precision even under autocast."""
    with full_precision(query.device):
        if query.ndim == 3 and query.shape[:1] == weighted.shape[:-2]:
            return torch.bmm(query, weighted.mT)  # what matmul would call, with less overhead
        return query @ weighted.mT
