"""Which values may be read, and in which dtype they are computed with."""

import torch
from torch import Tensor

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
