"""What lies between gradients and weights: clipping and rates."""

from typing import Literal

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

ClipBy = Literal["variable", "global"]
"""What a gradient's norm is taken over.

- `variable`: each weight tensor by itself, as TADAM does.
- `global`: all of them together.
"""


def clip_gradients(optimizer: Optimizer, norm: float, by: ClipBy) -> None:
    """Shorten the gradients that are longer than `norm`."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if by == "global":
        clip_grad_norm_(parameters, norm)
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    if gradients:
        norms = torch._foreach_norm(gradients)
        torch._foreach_mul_(gradients, [(norm / n).clamp(max=1.0) for n in norms])


class Schedule:
    """Sets the rates of an optimiser to a fraction of those it was made with.

    Args:
        optimizer: The optimiser.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.rates = [group["lr"] for group in optimizer.param_groups]

    def set(self, factor: float) -> None:
        """Rates of the next step."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
