"""The optimiser of a scale that is learned in log space."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from varscale.scalers.stochastic import LOG_LR

DEVIATION = 0.1
"""Learning rate of a dimension's own part of log alpha, as a share of that of the common part."""


class LogAdam(Optimizer):
    r"""Adam on log alpha, which separates what the dimensions share from what they do not (M33).

    The mean of a vector takes steps of about `lr`, as one number would in Adam. What is left of
    each dimension takes steps of a tenth of it, divided by one root mean square for all: Adam
    itself would let dimensions without a gradient drift as far as those with one.

    Args:
        params: Locations and spreads of log alpha, as `Scaler.log_parameters` lists them.
        lr: Learning rate.
        betas: Decay of the averages of gradients and of their squares.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = LOG_LR,
        betas: tuple[float, float] = (0.9, 0.99),
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step by the gradients."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float64)
                    state["average"] = torch.zeros_like(p)
                    state["common_square"] = p.new_zeros(())
                    state["other_square"] = p.new_zeros(())
                state["step"] += 1
                common = p.grad.mean()
                state["average"].lerp_(p.grad, 1 - beta1)
                state["common_square"].lerp_(common.square(), 1 - beta2)
                state["other_square"].lerp_((p.grad - common).square().mean(), 1 - beta2)
                t = state["step"].item()
                unbiased = math.sqrt(1 - beta2**t) / (1 - beta1**t)
                mean = state["average"].mean()
                step = unit(mean, state["common_square"])
                rounding = (16 * torch.finfo(p.dtype).eps) ** 2 * state["common_square"]
                other = state["other_square"].maximum(rounding)
                step = step + DEVIATION * unit(state["average"] - mean, other)
                p.sub_(group["lr"] * unbiased * step)
        return value


def unit(average: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
    """Divide by the root of a mean square; 0 / 0 is 0, and so is what has no square."""
    return average / square.sqrt().clamp_min(math.sqrt(torch.finfo(square.dtype).tiny))
