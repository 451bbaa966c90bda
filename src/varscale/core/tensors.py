"""Whether the values of a tensor may be read, and the dtype to compute in."""

import torch
from torch import Tensor

WIDE = (torch.float32, torch.float64)


def is_readable(x: Tensor) -> bool:
    """Whether values may be read: not on a GPU, which would have to wait, nor in a graph."""
    in_graph = torch.compiler.is_compiling() or torch.compiler.is_exporting()
    return x.device.type == "cpu" and not in_graph


def wide(x: Tensor) -> Tensor:
    """Convert a tensor to float32, unless it is float32 or float64."""
    return x if x.dtype in WIDE else x.float()


def promote(*tensors: Tensor) -> list[Tensor]:
    """Convert tensors to one dtype, float32 or wider."""
    dtypes = {tensor.dtype for tensor in tensors}
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    return [tensor.to(dtype) for tensor in tensors]
