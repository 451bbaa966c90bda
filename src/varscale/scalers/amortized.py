"""A posterior generated for each task: AVS and D-AVS."""

import math
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal

from varscale.core.registry import unknown
from varscale.scalers.base import (
    SCALERS,
    KLWeight,
    PriorSigma,
    Scaler,
    TaskPrototype,
    check_sigma,
    clamp_through,
    resolve_prior_sigma,
)
from varscale.scalers.posterior import gaussian
from varscale.scalers.stochastic import MIN_SIGMA

MeanLink = Literal["exp", "softplus", "identity"]
"""From the generator's output h to the mean.

- `exp`: exp(h), as in the released code; h is cut off at 10, where the scale is 22,026.
- `softplus`: log(1 + exp(h)), positive and linear for large h.
- `identity`: h itself, which may be negative.
"""
MEAN_LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda h: clamp_through(h, high=10.0).exp(),
    "softplus": F.softplus,
    "identity": lambda h: h,
}


class AmortizedScaler(Scaler):
    """A generator network from the task prototype to mean and spread; base of AVS and D-AVS."""

    own_rate = False
    dimensional: ClassVar[bool]

    def __init__(
        self,
        dim: int,
        *,
        hidden: int = 600,
        mean_link: MeanLink = "exp",
        sigma: float | Literal["generated"] = 1.0,
        task_prototype: TaskPrototype = "support+query",
        lr: float | None = None,
        prior_mean: float = 100.0,
        prior_sigma: PriorSigma = None,
        kl_weight: KLWeight = 1.0,
    ) -> None:
        super().__init__(
            size=dim if self.dimensional else 1,
            dim=dim,
            lr=lr,
            prior_mean=prior_mean,
            prior_sigma=resolve_prior_sigma(prior_sigma, dim),
            kl_weight=kl_weight,
        )
        if mean_link not in MEAN_LINKS:
            raise unknown("mean_link", mean_link, MEAN_LINKS)
        if task_prototype not in get_args(TaskPrototype):
            raise unknown("task_prototype", task_prototype, get_args(TaskPrototype))
        if not isinstance(sigma, str):
            check_sigma(sigma, self.kl_weight)
        elif sigma != "generated":
            raise ValueError(f'Expected sigma to be a number or "generated", got {sigma!r}.')
        self.mean_link = mean_link
        self.sigma = sigma
        self.task_prototype = task_prototype
        self.hidden = nn.Linear(dim, hidden)
        self.head = nn.Linear(hidden, 2 * self.size)

    def forward(self, task: Float[Tensor, "*task dim"]) -> Normal:
        """The posterior that the generator makes for each task."""
        h = self.head(self.hidden(task.to(self.hidden.weight.dtype)).relu())
        h_loc, h_sigma = h.chunk(2, dim=-1)  # (*task, size) each
        loc = MEAN_LINKS[self.mean_link](h_loc)
        if isinstance(self.sigma, str):
            sigma = clamp_through(h_sigma / 2, low=math.log(MIN_SIGMA), high=10.0).exp()
        else:
            sigma = torch.full_like(loc, self.sigma)
        return gaussian(loc, sigma)

    def _settings(self) -> Iterator[str]:
        yield from super()._settings()
        yield f"mean_link={self.mean_link}, sigma={self.sigma}"
        yield f"task_prototype={self.task_prototype}"


@SCALERS.register("d-avs")
class DAVS(AmortizedScaler):
    r"""Dimensional amortised scaling: a vector of scales generated for each task (M12).

    $(\mu_i, \sigma_i) = G_\beta(C_i), \quad q(\alpha_i) = \mathcal N(\mu_i, \operatorname{diag}
    \sigma_i^2)$, with $C_i$ the task prototype (M3) and $G$ an MLP with one hidden layer.

    As in the released code the network has outputs for log-variances even where $\sigma$ is fixed
    and does not use them.

    Args:
        dim: Embedding size $M$.
        hidden: Width of the hidden layer.
        mean_link: See `MeanLink`.
        sigma: $\sigma_i$, or `"generated"` by the network (never below 0.01).
        task_prototype: See `TaskPrototype`; the published `support+query` is transductive.
        lr: $l_\beta$ in the main optimiser; that of the other weights when not given.
        prior_mean: $\mu_0$ of every dimension.
        prior_sigma: $\sigma_0$; M when not given. `"sqrt"`, $\sqrt M$, is a prior strong enough to
            matter.
        kl_weight: 1 is the exact bound, each task having an $\alpha$ of its own; 0 is the
            released code.

    Example:
        >>> DAVS(dim=8)(torch.zeros(2, 8)).mean.shape
        torch.Size([2, 8])
    """

    dimensional = True


@SCALERS.register("avs")
class AVS(AmortizedScaler):
    """Amortised scaling with one scale per task: D-AVS, and its arguments, with a scalar output.

    Example:
        >>> AVS(dim=8)(torch.zeros(2, 8)).mean.shape
        torch.Size([2, 1])
    """

    dimensional = False
