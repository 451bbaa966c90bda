"""One variational posterior shared by all tasks: SVS and D-SVS."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal

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

MIN_SCALE = 0.01
"""A learned standard deviation is brought back to this after each step."""


class StochasticScaler(Scaler):
    """Mean and spread as parameters, the same for every task; what SVS and D-SVS have in common."""

    scale: Tensor

    def __init__(
        self, *, size: int, init_loc: float, scale: float, learn_scale: bool, **base: Any
    ) -> None:
        super().__init__(size=size, **base)
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

    def forward(self, task: Float[Tensor, "*task dim"]) -> Normal:
        """The same posterior for every task; each draws its own alpha from it."""
        shape = (*task.shape[:-1], self.size)
        scale = clamp_through(self.scale, low=MIN_SCALE) if self.learn_scale else self.scale
        return Normal(self.loc.expand(shape), scale.expand(shape), validate_args=False)

    @torch.no_grad()
    def project_(self) -> None:
        """Keep a learned spread at 0.01 or more, as published."""
        if self.learn_scale:
            self.scale.clamp_(min=MIN_SCALE)

    def _settings(self) -> Iterator[str]:
        yield from super()._settings()
        yield "scale learned" if self.learn_scale else f"scale={self.scale[0].item():g}"


@SCALERS.register("svs")
class SVS(StochasticScaler):
    r"""Stochastic variational scaling: one scale, shared by all tasks (M12).

    $q(\alpha) = \mathcal N(\mu, \sigma^2), \quad p(\alpha) = \mathcal N(\mu_0, \sigma_0^2)$

    Args:
        init_loc: Start of $\mu$.
        scale: $\sigma$, or where it starts.
        learn_scale: Learn $\sigma$ too, never below 0.01.
        lr: $l_\psi$, of plain SGD on the query-summed likelihood.
        prior_loc: $\mu_0$.
        prior_scale: $\sigma_0$, a standard deviation.
        kl_weight: As in Algorithm 1 and the released code, 1: the whole KL at every task.
            `"elbo"` weighs it once for all `n_tasks`.
        n_tasks: Training tasks, for `"elbo"`.

    Example:
        >>> q = SVS()(torch.zeros(2, 64))
        >>> q.mean.tolist(), round(q.stddev[0].item(), 3)
        ([[100.0], [100.0]], 0.2)
    """

    def __init__(
        self,
        *,
        init_loc: float = 100.0,
        scale: float = 0.2,
        learn_scale: bool = False,
        lr: float = 1e-4,
        prior_loc: float = 1.0,
        prior_scale: float = 1.0,
        kl_weight: KLWeight = 1.0,
        n_tasks: int | None = None,
    ) -> None:
        super().__init__(
            size=1,
            init_loc=init_loc,
            scale=scale,
            learn_scale=learn_scale,
            lr=lr,
            prior_loc=prior_loc,
            prior_scale=prior_scale,
            kl_weight=kl_weight,
            n_tasks=n_tasks,
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
        self, q: Normal, noise: Float[Tensor, "*draws size"]
    ) -> Float[Tensor, "*draws size"]:
        """The mean, of which the likelihood's gradient does not hear."""
        return q.loc.detach().expand_as(noise).to(q.loc)


@SCALERS.register("d-svs")
class DSVS(StochasticScaler):
    r"""Dimensional SVS: one scale per embedding dimension, shared by all tasks (M12).

    $q(\alpha) = \mathcal N(\mu, \operatorname{diag} \sigma^2), \alpha \in \mathbb R^M$

    Args:
        dim: Embedding size $M$.
        init_loc: Start of every $\mu_m$.
        scale: Every $\sigma_m$, or where it starts.
        learn_scale: Learn $\sigma$ too, never below 0.01.
        lr: $l_\psi$; 0.01 M when not given (16 for the published M = 1600), because the gradient
            of one entry shrinks like 1/M.
        prior_loc: $\mu_0$ of every dimension.
        prior_scale: $\sigma_0$ of every dimension; M when not given, as the released code ran it.
            `"sqrt"` for $\sqrt M$, the reading of its "1600" as a variance.
        kl_weight: 0.01, the balance of the released code; 1 is Algorithm 1, `"elbo"` the bound.
        n_tasks: Training tasks, for `"elbo"`.

    Example:
        >>> DSVS(dim=3)(torch.zeros(3)).mean.tolist()
        [100.0, 100.0, 100.0]
    """

    def __init__(
        self,
        dim: int,
        *,
        init_loc: float = 100.0,
        scale: float = 0.2,
        learn_scale: bool = False,
        lr: float | None = None,
        prior_loc: float = 1.0,
        prior_scale: PriorScale = None,
        kl_weight: KLWeight = 0.01,
        n_tasks: int | None = None,
    ) -> None:
        super().__init__(
            size=dim,
            dim=dim,
            init_loc=init_loc,
            scale=scale,
            learn_scale=learn_scale,
            lr=0.01 * dim if lr is None else lr,
            prior_loc=prior_loc,
            prior_scale=prior_spread(prior_scale, dim),
            kl_weight=kl_weight,
            n_tasks=n_tasks,
        )
