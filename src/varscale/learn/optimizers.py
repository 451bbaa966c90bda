"""What lies between gradients and weights: optimisers, clipping and rates."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, Optimizer

Group = dict[str, Any]

ClipBy = Literal["variable", "global"]
"""What a gradient's norm is taken over.

- `variable`: each weight tensor by itself, as TADAM does.
- `global`: all of them together.
"""


FUSED = ("cpu", "cuda", "mps", "xpu")
"""Devices that have the fused optimisers."""


def decaying(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[Group]:
    """Parameters as groups: convolutions and matrices decay; biases, norms and numbers do not."""
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def weights_optimizer(
    groups: list[Group], *, lr: float, algorithm: str, momentum: float
) -> Optimizer | None:
    """The optimiser of weights, `adam` or `sgd`; `None` when there are none."""
    if algorithm not in ("adam", "sgd"):
        raise ValueError(f"Expected algorithm 'adam' or 'sgd', got {algorithm!r}.")
    groups = [group for group in groups if group["params"]]
    if not groups:
        return None
    fused = groups[0]["params"][0].device.type in FUSED
    if algorithm == "adam":
        return Adam(groups, lr=lr, fused=fused)
    return SGD(groups, lr=lr, momentum=momentum, fused=fused)


def clip_gradients(optimizer: Optimizer, norm: float, by: ClipBy) -> None:
    """Shorten the gradients that are longer than `norm`."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if by == "global":
        clip_grad_norm_(parameters, norm)
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    if gradients:
        factors = (norm / torch.stack(torch._foreach_norm(gradients))).clamp(max=1.0)
        torch._foreach_mul_(gradients, list(factors.unbind()))


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
