"""A posterior generated for each task: AVS and D-AVS."""

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

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
from varscale.scalers.posterior import Posterior, gaussian
from varscale.scalers.stochastic import (
    DSVS,
    LOG_PRIOR_MEAN,
    LOG_PRIOR_SIGMA,
    MIN_SIGMA,
    SVS,
    StochasticScaler,
    or_default,
)

AmortizedFamily = Literal["hierarchical", "normal"]
"""Prior and posterior of a generated scale.

- `hierarchical`: the network adjusts the logarithm of a scale that all tasks share (M34). It begins
  as D-SVS, or SVS, with the same prior, and sees the supports alone.
- `normal`: the network generates the scale itself, as published.
"""

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
        family: AmortizedFamily = "hierarchical",
        hidden: int = 600,
        init: float | None = None,
        mean_link: MeanLink = "exp",
        sigma: float | Literal["generated"] | None = None,
        task_prototype: TaskPrototype | None = None,
        lr: float | None = None,
        prior_mean: float | None = None,
        prior_sigma: PriorSigma = None,
        kl_weight: KLWeight = 1.0,
    ) -> None:
        if family not in get_args(AmortizedFamily):
            raise unknown("family", family, get_args(AmortizedFamily))
        published = family == "normal"
        size = dim if self.dimensional else 1
        if sigma is None:
            sigma = 1.0 if published else 0.2
        super().__init__(
            size=size,
            dim=dim,
            lr=lr,
            prior_mean=or_default(prior_mean, 100.0 if published else LOG_PRIOR_MEAN),
            prior_sigma=resolve_prior_sigma(
                prior_sigma if published else or_default(prior_sigma, LOG_PRIOR_SIGMA), dim
            ),
            kl_weight=kl_weight,
        )
        if mean_link not in MEAN_LINKS:
            raise unknown("mean_link", mean_link, MEAN_LINKS)
        if task_prototype is None:
            task_prototype = "support+query" if published else "support"
        if task_prototype not in get_args(TaskPrototype):
            raise unknown("task_prototype", task_prototype, get_args(TaskPrototype))
        if not published and mean_link != "exp":
            raise ValueError(f"mean_link={mean_link!r} needs the normal family, got {family!r}.")
        if published and init is not None:
            raise ValueError(f"The normal family generates its scale; it takes no init={init!r}.")
        if not isinstance(sigma, str):
            check_sigma(sigma, self.kl_weight)
        elif not published or str(sigma) != "generated":
            raise ValueError(
                f'Expected sigma to be a number, or of a normal "generated", got {sigma!r}.'
            )
        self.options = {
            "family": family,
            "sigma": sigma,
            "task_prototype": task_prototype,
            "prior_mean": self.prior_mean,
            "prior_sigma": self.prior_sigma,
        }
        self.family = family
        self.mean_link = mean_link
        self.sigma = sigma
        self.task_prototype = task_prototype
        self.hidden = nn.Linear(dim, hidden)
        self.shared: StochasticScaler | None = None
        if published:
            self.head = nn.Linear(hidden, 2 * size)
            return
        shared: dict[str, Any] = {
            "init": init,
            "sigma": sigma,
            "prior_mean": self.prior_mean,
            "prior_sigma": self.prior_sigma,
            "kl_weight": self.kl_weight,
        }
        self.shared = DSVS(dim, **shared) if self.dimensional else SVS(**shared)
        self.options["init"] = self.shared.options["init"]
        self.head = nn.Linear(hidden, size)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, task: Float[Tensor, "*task dim"]) -> Posterior:
        """The posterior that the generator makes for each task."""
        h = self.head(self.hidden(task.to(self.hidden.weight.dtype)).relu())
        if self.shared is not None:
            return self.shared.posterior_at(self.shared.loc + h)
        h_loc, h_sigma = h.chunk(2, dim=-1)  # (*task, size) each
        loc = MEAN_LINKS[self.mean_link](h_loc)
        if isinstance(self.sigma, str):
            sigma = clamp_through(h_sigma / 2, low=math.log(MIN_SIGMA), high=10.0).exp()
        else:
            sigma = torch.full_like(loc, self.sigma)
        return gaussian(loc, sigma)

    def kl(self, q: Posterior) -> Float[Tensor, "*task"]:
        """KL from the prior (M11), in log space from that of the shared scale (M25, M26)."""
        return super().kl(q) if self.shared is None else self.shared.kl(q)

    def project_(self) -> None:
        """Keep the spread of a shared scale at 0.01 or more."""
        if self.shared is not None:
            self.shared.project_()

    def log_parameters(self) -> list[nn.Parameter]:
        """Location and spread of the shared scale; empty for the normal family."""
        return [] if self.shared is None else self.shared.log_parameters()

    def rescale_(self, factor: float) -> None:
        """Multiply alpha by a factor; the normal family raises ValueError."""
        if self.shared is None:
            super().rescale_(factor)
        else:
            self.shared.rescale_(factor)

    def _settings(self) -> Iterator[str]:
        yield from super()._settings()
        yield (
            f"mean_link={self.mean_link}, sigma={self.sigma}"
            if self.shared is None
            else "log-normal"
        )
        yield f"task_prototype={self.task_prototype}"


@SCALERS.register("d-avs")
class DAVS(AmortizedScaler):
    r"""Dimensional amortised scaling: a vector of scales generated for each task (M12).

    $(\mu_i, \sigma_i) = G_\beta(C_i), \quad q(\alpha_i) = \mathcal N(\mu_i, \operatorname{diag}
    \sigma_i^2)$, with $C_i$ the task prototype (M3) and $G$ an MLP with one hidden layer.

    By default the network generates what the task adds to the logarithm of a shared scale (M34). In
    the normal family, as in the released code, it has outputs for log-variances even where $\sigma$
    is fixed, and does not use them.

    Args:
        dim: Embedding size $M$.
        family: See `AmortizedFamily`.
        hidden: Width of the hidden layer.
        init: Initial value of the shared scale; see `DSVS`. Not of a normal.
        mean_link: See `MeanLink`; of a normal.
        sigma: Initial spread of $\log \alpha$, 0.2. Of a normal $\sigma_i$, 1, or `"generated"` by
            the network (never below 0.01).
        task_prototype: See `TaskPrototype`: `support`; of a normal `support+query`, which is
            transductive.
        lr: $l_\beta$ of the network in the main optimiser; that of the other weights when not
            given.
        prior_mean: $\mu_0$ of every dimension of a normal, 100; else as of `DSVS`.
        prior_sigma: $\sigma_0$; of a normal M when not given. `"sqrt"`, $\sqrt M$, is a prior
            strong enough to matter.
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
