"""One optimisation step: gradients, learning rates, clipping."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

ClipBy = Literal["variable", "global"]
"""Which gradients are clipped together.

- `variable`: each weight tensor by itself, as TADAM does.
- `global`: all of them together.
"""


def clip_gradients(optimizer: Optimizer, norm: float, by: ClipBy) -> None:
    """Clip gradients to a norm."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if by == "global":
        clip_grad_norm_(parameters, norm)
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    if gradients:
        factors = (norm / torch.stack(torch._foreach_norm(gradients))).clamp(max=1.0)
        torch._foreach_mul_(gradients, list(factors.unbind()))


class Schedule:
    """Set the learning rates of an optimiser to a multiple of those it was made with.

    Args:
        optimizer: The optimiser.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.rates = [group["lr"] for group in optimizer.param_groups]

    def set(self, factor: float) -> None:
        """Set the learning rates of the next step."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor


class Step:
    """One step of a model's optimisers, wherever it is taken: in a run, or on embeddings.

    Args:
        optimizers: They lower one loss; see `learn.optimizers`.
        own: Whether the last of them is a scaler's own, which is neither scheduled nor clipped.
        steppers: What steps in their place: Fabric wraps optimisers.
        backward: Computes the gradients of a loss.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        *,
        own: bool,
        steppers: Sequence[Any] | None = None,
        backward: Callable[[Tensor], object] = Tensor.backward,
    ) -> None:
        self.schedules = [Schedule(optimizer) for optimizer in optimizers]
        self.own = self.schedules.pop() if own and optimizers else None
        self.steppers = optimizers if steppers is None else steppers
        self.backward = backward

    def __call__(
        self,
        loss: Float[Tensor, ""],
        *,
        factor: float = 1.0,
        own_factor: float = 1.0,
        clip: float | None = None,
        clip_by: ClipBy = "variable",
    ) -> None:
        """Differentiate a loss, and step.

        Args:
            loss: The loss.
            factor: Of the learning rates that are scheduled.
            own_factor: Of a scaler's own learning rate: queries of this step over those it was
                made for.
            clip: Largest norm of a gradient.
            clip_by: See `ClipBy`.
        """
        self.backward(loss)
        for schedule in self.schedules:
            schedule.set(factor)
            if clip is not None:
                clip_gradients(schedule.optimizer, clip, clip_by)
        if self.own is not None:
            self.own.set(own_factor)
        for stepper in self.steppers:
            stepper.step()
            stepper.zero_grad()
