"""One variational posterior shared by all tasks: SVS and D-SVS."""

import math
from collections.abc import Iterator
from typing import Any, Literal, TypeVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import LogNormal

from varscale.functional import gaussian_kl
from varscale.registry import unknown
from varscale.scalers.base import (
    SCALERS,
    KLWeight,
    PriorScale,
    Scaler,
    check_finite,
    check_scale,
    clamp_through,
    prior_spread,
)
from varscale.scalers.posterior import Posterior, gaussian

T = TypeVar("T")

MIN_SCALE = 0.01
"""A learned standard deviation is brought back to this after each step."""

Prior = Literal["normal", "log-normal", "hierarchical"]
"""What is believed of the scale before the data speak.

- `normal`: alpha ~ N(prior_loc, prior_scale²), and q is normal: the paper.
- `log-normal`: log alpha ~ N(log prior_loc, prior_scale²), and q is log-normal, so alpha > 0 (M25).
- `hierarchical`: the same with mean and spread learned from the dimensions themselves (M26). What
  the data do not tell apart becomes one scale for all.

A log-normal q is learned by the main optimiser, its spread included.
"""

LOG_KL_WEIGHT = 0.04
"""Weight of a log-normal's KL when none is given: as if there were 25 independent tasks."""


class StochasticScaler(Scaler):
    """Mean and spread as parameters, the same for every task; what SVS and D-SVS have in common."""

    local = False
    scale: Tensor

    def __init__(
        self,
        *,
        size: int,
        prior: Prior,
        init_loc: float,
        scale: float,
        learn_scale: bool | None,
        **base: Any,
    ) -> None:
        if prior not in get_args(Prior):
            raise unknown("prior", prior, get_args(Prior))
        if prior != "normal":
            for name in ("init_loc", "prior_loc"):
                value = init_loc if name == "init_loc" else base[name]
                if not 0 < value < float("inf"):
                    raise ValueError(f"Expected {name} > 0 with a {prior} prior, got {value!r}.")
            init_loc, base["prior_loc"] = math.log(init_loc), math.log(base["prior_loc"])
        super().__init__(size=size, **base)
        self.prior = prior
        learn_scale = prior != "normal" if learn_scale is None else learn_scale
        check_scale(scale, self.kl_weight)
        check_finite(init_loc=init_loc)
        if learn_scale and scale < MIN_SCALE:
            raise ValueError(f"Expected a learned scale to start at >= {MIN_SCALE}, got {scale!r}.")
        if learn_scale and self.steps_itself:
            self._check_prior_step(bound=1.0)
        self.loc = nn.Parameter(torch.full((size,), float(init_loc)))
        self.learn_scale = learn_scale
        spread = torch.full((size,), float(scale))
        if learn_scale:
            self.scale = nn.Parameter(spread)
        else:
            self.register_buffer("scale", spread)

    def forward(self, task: Float[Tensor, "*task dim"]) -> Posterior:
        """The same posterior for every task; each draws its own alpha from it."""
        shape = (*task.shape[:-1], self.size)
        return self._posterior(self.loc.expand(shape))

    def _posterior(self, loc: Float[Tensor, "*task size"]) -> Posterior:
        scale = clamp_through(self.scale, low=MIN_SCALE) if self.learn_scale else self.scale
        if self.prior == "normal":
            return gaussian(loc, scale.expand_as(loc))
        return LogNormal(loc, scale.expand_as(loc), validate_args=False)

    def kl(self, q: Posterior) -> Float[Tensor, "*task"]:
        """KL from the prior, summed over dimensions (M11, M26); zero when there is no prior."""
        if self.prior != "hierarchical" or self.kl_weight == 0:
            return super().kl(q)
        centre = q.loc.mean()
        spread = ((q.loc - centre).square() + q.scale.square()).mean().sqrt()
        return gaussian_kl(q.loc, q.scale, centre, spread).sum(-1)

    @torch.no_grad()
    def project_(self) -> None:
        """Keep a learned spread at 0.01 or more, as published."""
        if self.learn_scale:
            self.scale.clamp_(min=MIN_SCALE)

    def _settings(self) -> Iterator[str]:
        yield from super()._settings()
        if self.prior != "normal":
            yield f"prior={self.prior}"
        yield "scale learned" if self.learn_scale else f"scale={self.scale[0].item():g}"


@SCALERS.register("svs")
class SVS(StochasticScaler):
    r"""Stochastic variational scaling: one scale, shared by all tasks (M12).

    $q(\alpha) = \mathcal N(\mu, \sigma^2), \quad p(\alpha) = \mathcal N(\mu_0, \sigma_0^2)$

    Args:
        prior: `normal` as published or `log-normal`; see `Prior`. In a log-normal, spreads are
            those of the logarithm.
        init_loc: Start of $\mu$; of the median of $\alpha$ in a log-normal.
        scale: $\sigma$, or where it starts.
        learn_scale: Learn $\sigma$ too, never below 0.01; when not given, in a log-normal alone.
        lr: $l_\psi$, of plain SGD on the query-summed likelihood; 1e-4 when not given, while a
            log-normal is then left to the main optimiser.
        prior_loc: $\mu_0$: 1 when not given; of a log-normal the median, 10.
        prior_scale: $\sigma_0$, a standard deviation: 1 when not given; of a log-normal 3.
        kl_weight: As in Algorithm 1 and the released code, 1: the whole KL at every task; of a
            log-normal 0.04. `"elbo"` weighs it once for all `n_tasks`.
        n_tasks: Independent training tasks, for `"elbo"`.
        shot_offset: Start of $b$ in the shot law (M23); `None` for a scale without it.

    Example:
        >>> q = SVS()(torch.zeros(2, 64))
        >>> q.mean.tolist(), round(q.stddev[0].item(), 3)
        ([[100.0], [100.0]], 0.2)
    """

    def __init__(
        self,
        *,
        prior: Prior = "normal",
        init_loc: float = 100.0,
        scale: float = 0.2,
        learn_scale: bool | None = None,
        lr: float | None = None,
        prior_loc: float | None = None,
        prior_scale: float | None = None,
        kl_weight: KLWeight | None = None,
        n_tasks: float | None = None,
        shot_offset: float | None = None,
    ) -> None:
        if prior == "hierarchical":
            raise ValueError(
                "A hierarchical prior needs several dimensions to learn from: use d-svs, or "
                'prior="log-normal".'
            )
        published = prior == "normal"
        super().__init__(
            size=1,
            prior=prior,
            init_loc=init_loc,
            scale=scale,
            learn_scale=learn_scale,
            lr=1e-4 if lr is None and published else lr,
            prior_loc=given(prior_loc, 1.0 if published else 10.0),
            prior_scale=given(prior_scale, 1.0 if published else 3.0),
            kl_weight=given(kl_weight, 1.0 if published else LOG_KL_WEIGHT),
            n_tasks=n_tasks,
            shot_offset=shot_offset,
        )


@SCALERS.register("decay")
class Decay(SVS):
    r"""SVS deaf to the likelihood and without noise: a scale that its prior alone moves.

    $\mu_t = \mu_0 + (\mu_{\text{init}} - \mu_0)(1 - l_\psi w / \sigma_0^2)^t$, a fixed schedule. It
    tells what SVS learns from what it would do anyway.

    Args:
        **svs: Arguments of `SVS`.
    """

    def __init__(self, **svs: Any) -> None:
        super().__init__(**svs)

    def sample(
        self, q: Posterior, noise: Float[Tensor, "*draws size"]
    ) -> Float[Tensor, "*draws size"]:
        """The middle of q, detached so that the likelihood does not move it."""
        return super().sample(q, torch.zeros_like(noise)).detach()


@SCALERS.register("d-svs")
class DSVS(StochasticScaler):
    r"""Dimensional SVS: one scale per embedding dimension, shared by all tasks (M12).

    $q(\alpha) = \mathcal N(\mu, \operatorname{diag} \sigma^2), \alpha \in \mathbb R^M$

    Args:
        dim: Embedding size $M$.
        prior: See `Prior`; `hierarchical` keeps together what the data do not tell apart. In a
            log-normal, spreads are those of the logarithm.
        init_loc: Start of every $\mu_m$; of the medians of $\alpha$ in a log-normal.
        scale: Every $\sigma_m$, or where it starts.
        learn_scale: Learn $\sigma$ too, never below 0.01; when not given, in a log-normal alone.
        lr: $l_\psi$; 0.01 M when not given (16 for the published M = 1600), because the gradient
            of one entry shrinks like 1/M. A log-normal is then left to the main optimiser.
        prior_loc: $\mu_0$ of every dimension: 1 when not given; of a log-normal the median, 10.
        prior_scale: $\sigma_0$ of every dimension; M when not given, as the released code ran it,
            of a log-normal 3. `"sqrt"` for $\sqrt M$, the reading of its "1600" as a variance.
        kl_weight: 0.01, the balance of the released code, of a log-normal 0.04; 1 is Algorithm 1,
            `"elbo"` the bound.
        n_tasks: Independent training tasks, for `"elbo"`. Tasks that share classes are not: a
            quarter to a half of the number of training classes is a good start, and
            `frozen.choose_n_tasks` asks held-out classes.
        shot_offset: Start of $b$ in the shot law (M23); `None` for a scale without it.

    Example:
        >>> DSVS(dim=3)(torch.zeros(3)).mean.tolist()
        [100.0, 100.0, 100.0]
    """

    def __init__(
        self,
        dim: int,
        *,
        prior: Prior = "normal",
        init_loc: float = 100.0,
        scale: float = 0.2,
        learn_scale: bool | None = None,
        lr: float | None = None,
        prior_loc: float | None = None,
        prior_scale: PriorScale = None,
        kl_weight: KLWeight | None = None,
        n_tasks: float | None = None,
        shot_offset: float | None = None,
    ) -> None:
        published = prior == "normal"
        super().__init__(
            size=dim,
            dim=dim,
            prior=prior,
            init_loc=init_loc,
            scale=scale,
            learn_scale=learn_scale,
            lr=0.01 * dim if lr is None and published else lr,
            prior_loc=given(prior_loc, 1.0 if published else 10.0),
            prior_scale=prior_spread(prior_scale if published else given(prior_scale, 3.0), dim),
            kl_weight=given(kl_weight, 0.01 if published else LOG_KL_WEIGHT),
            n_tasks=n_tasks,
            shot_offset=shot_offset,
        )


def given(value: T | None, default: T) -> T:
    """A value, or the default when there is none."""
    return default if value is None else value
