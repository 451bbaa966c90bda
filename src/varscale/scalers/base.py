"""Base class of scalers: a module whose forward returns q(alpha | task)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import LogNormal

from varscale.core.registry import Options, Registry
from varscale.functional import gaussian_kl
from varscale.scalers.posterior import Posterior

SCALERS: "Registry[Scaler]" = Registry("scaler", group="varscale.scalers")

KLWeight = float | Literal["elbo"]
"""Weight of one task's KL: a number, or `"elbo"` for the exact bound."""

PriorSigma = float | Literal["sqrt"] | None
"""Prior standard deviation of an entry of M: a number, `"sqrt"` for sqrt(M), `None` for M."""

TaskPrototype = Literal["support", "support+query"]
"""What a scaler is shown of a task.

- `support`: the mean of the embedded supports; a query's answer depends on no other query.
- `support+query`: the mean of supports and unlabelled queries, as published. The classifier is
  then **transductive**: its accuracy depends on how many queries come together.
"""


class Scaler(nn.Module, ABC):
    r"""A distribution over the scale $\alpha$ of a metric, given a task.

    A scaler knows its prior, the weight of its KL, and its learning rate. A member
    implements `forward`, and calls this constructor.

    Args:
        size: Entries of $\alpha$: 1 for a scalar scale, the embedding size for a vector.
        lr: Learning rate of its parameters; `None` for the main optimiser's.
        prior_mean: Prior mean $\mu_0$.
        prior_sigma: Prior standard deviation $\sigma_0$.
        kl_weight: Weight of the KL of one task against its query-summed likelihood. 0 means no
            prior; `"elbo"` is the exact bound: 1 / effective_tasks for an $\alpha$ shared by all
            tasks, 1 for an $\alpha$ of each task's own.
        effective_tasks: Independent training tasks; needed by `"elbo"` when $\alpha$ is shared.
        dim: Embedding size it is made for; `None` when any will do.
    """

    own_rate: ClassVar[bool] = True
    """With `lr`, learn by plain SGD at that rate instead of by the main optimiser."""

    learned: ClassVar[bool] = True
    """Whether anything about it is learned."""

    local: ClassVar[bool] = True
    """Whether q depends on the task: each then has an alpha, and a KL, of its own."""

    task_prototype: TaskPrototype = "support"

    options: Options = MappingProxyType({})
    """Arguments that were chosen by others, as they were chosen: a run records them."""

    def __init__(
        self,
        *,
        size: int,
        lr: float | None = None,
        prior_mean: float = 1.0,
        prior_sigma: float = 1.0,
        kl_weight: KLWeight = 0.0,
        effective_tasks: float | None = None,
        dim: int | None = None,
    ) -> None:
        super().__init__()
        if size < 1 or (dim is not None and dim < 1):
            raise ValueError(f"Expected a positive embedding size, got {min(size, dim or 1)}.")
        if not 0 < prior_sigma < float("inf"):
            raise ValueError(f"Expected a standard deviation prior_sigma > 0, got {prior_sigma!r}.")
        if lr is not None and not 0 < lr < float("inf"):
            raise ValueError(f"Expected a learning rate lr > 0, got {lr!r}.")
        check_finite(prior_mean=prior_mean)
        self.size, self.dim, self.lr = size, dim, lr
        self.prior_mean, self.prior_sigma = prior_mean, prior_sigma
        self.kl_weight = self._resolve_weight(kl_weight, effective_tasks)
        if self.own_rate:
            self._check_prior_step()

    @abstractmethod
    def forward(self, task: Float[Tensor, "*task dim"]) -> Posterior:
        """q(alpha | task), of batch shape (*task, size), from the tasks' prototypes (M3)."""

    def sample(
        self, q: Posterior, noise: Float[Tensor, "*draws size"]
    ) -> Float[Tensor, "*draws size"]:
        r"""Draw $\alpha$: it, or its logarithm, is $\mu + \sigma \odot \epsilon$ (M12)."""
        value = q.loc + q.scale * noise.to(q.loc, non_blocking=True)
        return value.exp() if isinstance(q, LogNormal) else value

    def kl(self, q: Posterior) -> Float[Tensor, "*task"]:
        """KL from the prior, summed over dimensions (M11); zero when there is no prior."""
        if self.kl_weight == 0:
            return q.loc.new_zeros(q.batch_shape[:-1])
        return gaussian_kl(q.loc, q.scale, self.prior_mean, self.prior_sigma).sum(-1)

    def penalty(self, q: Posterior) -> Float[Tensor, "*task"]:
        """Weighted KL: add it to the query-summed negative log-likelihood of each task."""
        return self.kl_weight * self.kl(q)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring parameters back into their domain after a step; most need nothing."""

    def log_parameters(self) -> list[nn.Parameter]:
        """Location and spread of log alpha; empty if q is a distribution of alpha itself (M32)."""
        return []

    def rescale_(self, factor: float) -> None:
        """Multiply alpha by a factor; only for a q of log alpha."""
        raise ValueError(
            f"Expected a scaler whose q is a distribution of log alpha, got {self}. Use a "
            "log-normal or hierarchical family."
        )

    def _check_prior_step(self, bound: float = 2.0) -> None:
        r"""Raise ValueError if the prior alone makes the posterior diverge (M13).

        A step multiplies $\mu - \mu_0$ by $1 - l_\psi w / \sigma_0^2$; at a factor of -1 or below
        it grows without end. A learned $\sigma$ has twice the curvature, hence half the bound.
        """
        step = (self.lr or 0.0) * self.kl_weight / self.prior_sigma**2
        if step >= bound:
            limit = bound * self.prior_sigma**2 / self.kl_weight
            raise ValueError(
                f"Expected lr * kl_weight / prior_sigma² < {bound:g}, got {step:g}: each step "
                f"would multiply the distance from the prior by {1 - 2 * step / bound:g} and "
                f"diverge. Use lr < {limit:g}, a smaller kl_weight, or a larger prior_sigma."
            )

    def _resolve_weight(self, weight: float | str, effective_tasks: float | None) -> float:
        if weight == "elbo":
            if self.local and effective_tasks is None:
                return 1.0
            if self.local or effective_tasks is None or not 0 < effective_tasks < float("inf"):
                need = "no number" if self.local else "the number"
                raise ValueError(
                    f'kl_weight="elbo" needs {need} of training tasks, got '
                    f"effective_tasks={effective_tasks}. Give effective_tasks if they share an "
                    "alpha (local = False), or a number as kl_weight."
                )
            return 1 / effective_tasks
        if isinstance(weight, str) or not 0 <= weight < float("inf"):
            raise ValueError(f'Expected a finite kl_weight >= 0 or "elbo", got {weight!r}.')
        return float(weight)

    def _settings(self) -> Iterator[str]:
        yield f"size={self.size}"
        if self.kl_weight:
            yield f"prior=N({self.prior_mean:g}, {self.prior_sigma:g}²)"
            yield f"kl_weight={self.kl_weight:g}"
        if self.lr is not None:
            yield f"lr={self.lr:g}"

    def extra_repr(self) -> str:
        """Settings, for `repr`."""
        return ", ".join(self._settings())


def resolve_prior_sigma(prior_sigma: PriorSigma, dim: int) -> float:
    """Resolve a prior's standard deviation for embeddings of a size."""
    if isinstance(prior_sigma, str):
        if prior_sigma != "sqrt":
            raise ValueError(f'Expected prior_sigma to be a number or "sqrt", got {prior_sigma!r}.')
        return math.sqrt(dim)
    return float(dim) if prior_sigma is None else prior_sigma


def check_sigma(sigma: float, kl_weight: float) -> None:
    """Raise ValueError if sigma is not a standard deviation, or makes the KL infinite."""
    if not 0 <= sigma < float("inf"):
        raise ValueError(f"Expected a standard deviation sigma >= 0, got {sigma!r}.")
    if sigma == 0 and kl_weight:
        raise ValueError(
            f"Expected sigma > 0 with a prior (kl_weight={kl_weight:g}): the KL of a point is "
            "infinite. Use a small positive sigma, or kl_weight=0."
        )


def clamp_through(x: Tensor, *, low: float | None = None, high: float | None = None) -> Tensor:
    """Clamp with the gradient of the identity, so that values beyond the bound can come back."""
    return x.clamp(low, high).detach() + (x - x.detach())


def check_finite(**values: float) -> None:
    """Raise ValueError if a value is NaN or infinite."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"Expected a finite {name}, got {value!r}.")
