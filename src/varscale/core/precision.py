"""Floating-point precision of a model, and of its parts that stay in float32."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch.amp import is_autocast_available

Precision = Literal["32-true", "64-true", "bf16-mixed"]
"""The arithmetic of a run, as Lightning Fabric names it.

- `32-true`: float32.
- `64-true`: float64.
- `bf16-mixed`: the embedding in bfloat16, from float32 weights; scale, prior, logits and loss in
  float32. Faster on CPUs with bfloat16 instructions; see `varscale doctor`.
"""


def embedding_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Context in which embeddings are computed in a precision; later steps leave it again."""
    if precision == "bf16-mixed":
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Context that turns off any surrounding autocast to half precision."""
    if is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def has_bfloat16() -> bool:
    """Whether this CPU has instructions that multiply bfloat16; `False` if torch cannot tell."""
    tell: Callable[[], dict[str, Any]]
    tell = getattr(torch.cpu, "get_capabilities", dict)  # older torch does not have it
    return any(tell().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
