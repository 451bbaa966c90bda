"""One variational posterior shared by all tasks: SVS and D-SVS."""

import math
from collections.abc import Iterator
from typing import Any, Literal, TypeVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from varscale.core.registry import unknown
from varscale.functional import gaussian_kl
from varscale.scalers.base import (
    SCALERS,
    KLWeight,
    PriorSigma,
    Scaler,
    check_finite,
    check_sigma,
    clamp_through,
    resolve_prior_sigma,
)
from varscale.scalers.posterior import Posterior, gaussian, log_gaussian

T = TypeVar("T")

MIN_SIGMA = 0.01
"""A learned standard deviation is brought back to this after each step."""

Family = Literal["normal", "log-normal", "hierarchical"]
"""Prior and posterior of the scale.

- `log-normal`: log alpha ~ N(log prior_mean, prior_sigma²), and q is log-normal: alpha > 0 (M25).
- `hierarchical`: the same with mean and spread learned from the dimensions themselves (M26). What
  the data do not tell apart shares one scale.
- `normal`: alpha ~ N(prior_mean, prior_sigma²), and q is normal: the paper, with its constants.

The first two need no initial value and no learning rate (M32, M33).
"""

LOG_KL_WEIGHT = 0.04
"""Weight of a log-normal's KL when none is given: as if there were 25 independent tasks."""

LOG_PRIOR_MEAN, LOG_PRIOR_SIGMA = 10.0, 3.0
"""Prior of a scale in log space: its median, and the standard deviation of its logarithm."""

LOG_LR = 0.02
"""Learning rate of log alpha: a step changes the scale by about 2 %, whatever its size (M33)."""

PUBLISHED_INIT = 100.0
"""Initial value of the normal family."""


class StochasticScaler(Scaler):
    """Base of SVS and D-SVS: mean and sigma are parameters, shared by all tasks."""

    local = False
    sigma: Tensor

    def __init__(
        self,
        *,
        size: int,
        family: Family,
        init: float | None,
        sigma: float,
        learn_sigma: bool | None,
        **base: Any,
    ) -> None:
        if family not in get_args(Family):
            raise unknown("family", family, get_args(Family))
        learn_sigma = or_default(learn_sigma, family != "normal")
        if init is None:
            init = PUBLISHED_INIT if family == "normal" else base["prior_mean"]
        own = {"family": family, "init": init, "sigma": sigma, "learn_sigma": learn_sigma}
        options = {**own, **{name: base[name] for name in base if name != "dim"}}
        if family != "normal":
            for name, value in {"prior_mean": base["prior_mean"], "init": init}.items():
                if not 0 < value < float("inf"):
                    raise ValueError(f"Expected {name} > 0 with a {family} prior, got {value!r}.")
            init, base["prior_mean"] = math.log(init), math.log(base["prior_mean"])
        self.family = family
        super().__init__(size=size, **base)
        self.options = options
        check_sigma(sigma, self.kl_weight)
        check_finite(init=init)
        if learn_sigma and sigma < MIN_SIGMA:
            raise ValueError(
                f"Expected an initial sigma >= {MIN_SIGMA} if it is learned, got {sigma!r}."
            )
        if learn_sigma and self.own_rate:
            self._check_prior_step(bound=1.0)
        self.loc = nn.Parameter(torch.full((size,), float(init)))
        self.learn_sigma = learn_sigma
        spread = torch.full((size,), float(sigma))
        if learn_sigma:
            self.sigma = nn.Parameter(spread)
        else:
            self.register_buffer("sigma", spread)

    def forward(self, task: Float[Tensor, "*task dim"]) -> Posterior:
        """The same posterior for every task; each draws its own alpha from it."""
        shape = (*task.shape[:-1], self.size)
        return self.posterior_at(self.loc.expand(shape))

    def posterior_at(self, loc: Float[Tensor, "*task size"]) -> Posterior:
        """The posterior around a location of each task's own."""
        sigma = clamp_through(self.sigma, low=MIN_SIGMA) if self.learn_sigma else self.sigma
        if self.family == "normal":
            return gaussian(loc, sigma.expand_as(loc))
        return log_gaussian(loc, sigma.expand_as(loc))

    def kl(self, q: Posterior) -> Float[Tensor, "*task"]:
        """KL from the prior, summed over dimensions (M11, M26); zero when there is no prior."""
        if self.family != "hierarchical" or self.kl_weight == 0:
            return super().kl(q)
        centre = q.loc.mean(-1, keepdim=True)  # of each task: it must not see its neighbours
        spread = ((q.loc - centre).square() + q.scale.square()).mean(-1, keepdim=True).sqrt()
        return gaussian_kl(q.loc, q.scale, centre, spread).sum(-1)

    @torch.no_grad()
    def project_(self) -> None:
        """Keep a learned sigma at 0.01 or more, as published."""
        if self.learn_sigma:
            self.sigma.clamp_(min=MIN_SIGMA)

    def log_parameters(self) -> list[nn.Parameter]:
        """Location and, if learned, spread of log alpha; empty for the normal family."""
        own = (self.loc, self.sigma) if self.family != "normal" else ()
        return [p for p in own if isinstance(p, nn.Parameter)]

    @torch.no_grad()
    def rescale_(self, factor: float) -> None:
        """Multiply alpha by a factor; the normal family raises ValueError."""
        if self.family == "normal":
            super().rescale_(factor)
        self.loc.add_(math.log(factor))

    def _check_prior_step(self, bound: float = 2.0) -> None:
        if self.family == "normal":  # in log space steps do not grow with the gradient
            super()._check_prior_step(bound)

    def _settings(self) -> Iterator[str]:
        if self.family == "normal":
            yield from super()._settings()
        else:
            prior = f", prior=LogNormal({math.exp(self.prior_mean):.4g}, {self.prior_sigma:g}²)"
            shown = "" if self.family == "hierarchical" or not self.kl_weight else prior
            yield f"size={self.size}, family={self.family}{shown}"
            yield f"kl_weight={self.kl_weight:g}, lr={self.lr:g}"
        yield "sigma learned" if self.learn_sigma else f"sigma={self.sigma[0].item():g}"


@SCALERS.register("svs")
class SVS(StochasticScaler):
    r"""Stochastic variational scaling: one scale, shared by all tasks (M12).

    $q(\alpha) = \mathcal N(\mu, \sigma^2), \quad p(\alpha) = \mathcal N(\mu_0, \sigma_0^2)$

    Args:
        family: `log-normal`, or `normal` as published; see `Family`. In a log-normal, spreads are
            those of the logarithm.
        init: Initial value of the median of $\alpha$, `prior_mean` when not given; a run corrects
            it by its first tasks (M32). Of a normal, of $\mu$: 100.
        sigma: $\sigma$, or its initial value if learned.
        learn_sigma: Learn $\sigma$ too, never below 0.01; when not given, in a log-normal alone.
        lr: Learning rate of $\log \alpha$ (M33), 0.02 when not given. Of a normal $l_\psi$, of
            plain SGD on the query-summed likelihood: 1e-4.
        prior_mean: $\mu_0$: 1 when not given; of a log-normal the median, 10.
        prior_sigma: $\sigma_0$, a standard deviation: 1 when not given; of a log-normal 3.
        kl_weight: As in Algorithm 1 and the released code, 1: the whole KL at every task; of a
            log-normal 0.04. `"elbo"` weighs it once for all `effective_tasks`.
        effective_tasks: Independent training tasks, for `"elbo"`.

    Example:
        >>> q = SVS(init=20.0)(torch.zeros(2, 64))
        >>> [round(alpha, 3) for alpha in q.loc.exp().flatten().tolist()]
        [20.0, 20.0]
    """

    def __init__(
        self,
        *,
        family: Family = "log-normal",
        init: float | None = None,
        sigma: float = 0.2,
        learn_sigma: bool | None = None,
        lr: float | None = None,
        prior_mean: float | None = None,
        prior_sigma: float | None = None,
        kl_weight: KLWeight | None = None,
        effective_tasks: float | None = None,
    ) -> None:
        if family == "hierarchical":
            raise ValueError(
                "A hierarchical prior needs several dimensions to learn from: use d-svs, or "
                'family="log-normal".'
            )
        published = family == "normal"
        super().__init__(
            size=1,
            family=family,
            init=init,
            sigma=sigma,
            learn_sigma=learn_sigma,
            lr=or_default(lr, 1e-4 if published else LOG_LR),
            prior_mean=or_default(prior_mean, 1.0 if published else LOG_PRIOR_MEAN),
            prior_sigma=or_default(prior_sigma, 1.0 if published else LOG_PRIOR_SIGMA),
            kl_weight=or_default(kl_weight, 1.0 if published else LOG_KL_WEIGHT),
            effective_tasks=effective_tasks,
        )


@SCALERS.register("decay")
class Decay(SVS):
    r"""A control: SVS without noise or likelihood; only the prior moves the scale.

    $\mu_t = \mu_0 + (\mu_{\text{init}} - \mu_0)(1 - l_\psi w / \sigma_0^2)^t$, a fixed schedule. It
    tells what SVS learns from what it would do anyway.

    Args:
        family: As of `SVS`.
        **svs: Other arguments of `SVS`.
    """

    def __init__(self, *, family: Family = "normal", **svs: Any) -> None:
        super().__init__(family=family, **svs)

    def log_parameters(self) -> list[nn.Parameter]:
        """None: a search over tasks would be a likelihood."""
        return []

    def sample(
        self, q: Posterior, noise: Float[Tensor, "*draws size"]
    ) -> Float[Tensor, "*draws size"]:
        """The median of q, detached so that the likelihood does not move it."""
        return super().sample(q, torch.zeros_like(noise)).detach()


@SCALERS.register("d-svs")
class DSVS(StochasticScaler):
    r"""Dimensional SVS: one scale per embedding dimension, shared by all tasks (M12).

    $q(\alpha) = \mathcal N(\mu, \operatorname{diag} \sigma^2), \alpha \in \mathbb R^M$

    Args:
        dim: Embedding size $M$.
        family: See `Family`; `hierarchical` keeps together what the data do not tell apart. In a
            log-normal, spreads are those of the logarithm.
        init: Initial value of the medians of $\alpha$, `prior_mean` when not given; a run corrects
            it by its first tasks (M32). Of a normal, of every $\mu_m$: 100.
        sigma: Every $\sigma_m$, or their initial value if learned.
        learn_sigma: Learn $\sigma$ too, never below 0.01; when not given, in a log-normal alone.
        lr: Learning rate of $\log \alpha$ (M33), 0.02 when not given. Of a normal $l_\psi$: 0.01 M
            (16 for the published M = 1600), because the gradient of one entry shrinks like 1/M.
        prior_mean: $\mu_0$ of every dimension: 1 when not given; of a log-normal the median, 10.
        prior_sigma: $\sigma_0$ of every dimension; M when not given, as the released code ran it,
            of a log-normal 3. `"sqrt"` for $\sqrt M$, the reading of its "1600" as a variance.
        kl_weight: 0.01, the balance of the released code, of a log-normal 0.04; 1 is Algorithm 1,
            `"elbo"` the bound.
        effective_tasks: Independent training tasks, for `"elbo"`. Tasks that share classes are
            not: a quarter to a half of the number of training classes is a good start, and
            `learn.choose_effective_tasks` asks held-out classes.

    Example:
        >>> DSVS(dim=3, family="normal")(torch.zeros(3)).mean.tolist()
        [100.0, 100.0, 100.0]
    """

    def __init__(
        self,
        dim: int,
        *,
        family: Family = "hierarchical",
        init: float | None = None,
        sigma: float = 0.2,
        learn_sigma: bool | None = None,
        lr: float | None = None,
        prior_mean: float | None = None,
        prior_sigma: PriorSigma = None,
        kl_weight: KLWeight | None = None,
        effective_tasks: float | None = None,
    ) -> None:
        published = family == "normal"
        super().__init__(
            size=dim,
            dim=dim,
            family=family,
            init=init,
            sigma=sigma,
            learn_sigma=learn_sigma,
            lr=or_default(lr, 0.01 * dim if published else LOG_LR),
            prior_mean=or_default(prior_mean, 1.0 if published else LOG_PRIOR_MEAN),
            prior_sigma=resolve_prior_sigma(
                prior_sigma if published else or_default(prior_sigma, LOG_PRIOR_SIGMA), dim
            ),
            kl_weight=or_default(kl_weight, 0.01 if published else LOG_KL_WEIGHT),
            effective_tasks=effective_tasks,
        )


def or_default(value: T | None, default: T) -> T:
    """Return a value, or the default if it is `None`."""
    return default if value is None else value
