"""Tensors made fit to be compared: one dtype, one embedding size, the same tasks."""

import torch
from torch import Tensor

from varscale.precision import full_precision

WIDE = (torch.float32, torch.float64)


def is_readable(x: Tensor) -> bool:
    """Whether its values may be looked at: not on a device, which would wait, nor in a graph."""
    return x.device.type == "cpu" and not torch.compiler.is_exporting()


def wide(x: Tensor) -> Tensor:
    """Bring a tensor to float32, if it is not float32 or float64."""
    return x if x.dtype in WIDE else x.float()


def promote(*tensors: Tensor) -> list[Tensor]:
    """Bring tensors to one dtype, float32 or wider."""
    dtypes = {tensor.dtype for tensor in tensors}
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    return [tensor.to(dtype) for tensor in tensors]


def aligned(query: Tensor, reference: Tensor, alpha: Tensor | float) -> list[Tensor]:
    """Check what is to be compared; return it in one dtype, alpha as (*task, 1, 1 or dim)."""
    if not isinstance(alpha, Tensor) or alpha.ndim == 0:
        alpha = torch.as_tensor(alpha, dtype=query.dtype, device=query.device).reshape(1)
    if query.ndim < 2 or reference.ndim < 2 or query.shape[-1] != reference.shape[-1]:
        raise ValueError(
            "Expected queries (..., query, dim) and references (..., way, dim) of one dim, "
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
    """Inner products (*task, query, way), in full precision under autocast too."""
    with full_precision(query.device):
        if query.ndim == 3 and query.shape[:1] == weighted.shape[:-2]:
            return torch.bmm(query, weighted.mT)  # what matmul comes to, sooner
        return query @ weighted.mT
