"""What every scaler is: a module whose forward returns q(alpha | task)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.distributions import LogNormal
from torch.optim import SGD, Optimizer

from varscale.functional import gaussian_kl
from varscale.pooling import class_counts
from varscale.registry import Registry
from varscale.scalers.posterior import Posterior
from varscale.shots import shot_factor, tempered

SCALERS: "Registry[Scaler]" = Registry("scaler")

KLWeight = float | Literal["elbo"]
"""Weight of one task's KL: a number, or `"elbo"` for the exact bound."""

PriorScale = float | Literal["sqrt"] | None
"""Prior standard deviation of an entry of M: a number, `"sqrt"` for sqrt(M), `None` for M."""

TaskPrototype = Literal["support", "support+query"]
"""What a scaler is shown of a task.

- `support`: the mean of the embedded supports; a query's answer depends on no other query.
- `support+query`: the mean of supports and unlabelled queries, as published. The classifier is
  then **transductive**: its accuracy depends on how many queries come together.
"""


class Scaler(nn.Module, ABC):
    r"""A distribution over the scale $\alpha$ of a metric, given a task.

    A scaler knows its prior, the weight of its KL, and how it wants to be learned. A member
    implements `forward`, and calls this constructor.

    Args:
        size: Entries of $\alpha$: 1 for a scalar scale, the embedding size for a vector.
        lr: Learning rate of its parameters; `None` leaves it to the main optimiser's rate.
        prior_loc: Prior mean $\mu_0$.
        prior_scale: Prior standard deviation $\sigma_0$.
        kl_weight: Weight of the KL of one task against its query-summed likelihood. 0 means no
            prior; `"elbo"` is the exact bound: 1 / n_tasks for an $\alpha$ shared by all tasks,
            1 for an $\alpha$ of each task's own.
        n_tasks: Independent training tasks; needed by `"elbo"` when $\alpha$ is shared.
        dim: Embedding size it is made for; `None` when any will do.
        shot_offset: Start of $b$ in the law $n / (n + b)$ by which the scale grows with a class's
            number of supports (M23); `None` for a scale that knows nothing of shots. $b$ is
            learned by the main optimiser, over tasks of mixed shots.
    """

    own_rate: ClassVar[bool] = True
    """Where `lr` is given, learn by plain SGD at it, not by the main optimiser."""

    learned: ClassVar[bool] = True
    """Whether anything about it is learned."""

    local: ClassVar[bool] = True
    """Whether q depends on the task: each then has an alpha, and a KL, of its own."""

    task_prototype: TaskPrototype = "support"

    def __init__(
        self,
        *,
        size: int,
        lr: float | None = None,
        prior_loc: float = 1.0,
        prior_scale: float = 1.0,
        kl_weight: KLWeight = 0.0,
        n_tasks: float | None = None,
        dim: int | None = None,
        shot_offset: float | None = None,
    ) -> None:
        super().__init__()
        if size < 1 or (dim is not None and dim < 1):
            raise ValueError(f"Expected a positive embedding size, got {min(size, dim or 1)}.")
        if not 0 < prior_scale < float("inf"):
            raise ValueError(f"Expected a standard deviation prior_scale > 0, got {prior_scale!r}.")
        if lr is not None and not 0 < lr < float("inf"):
            raise ValueError(f"Expected a learning rate lr > 0, got {lr!r}.")
        check_finite(prior_loc=prior_loc)
        self.size, self.dim, self.lr = size, dim, lr
        self.prior_loc, self.prior_scale = prior_loc, prior_scale
        self.kl_weight = self._resolved_weight(kl_weight, n_tasks)
        self.log_shot_offset: Tensor | None = None
        if shot_offset is not None:
            if not 0 < shot_offset < float("inf"):
                raise ValueError(f"Expected shot_offset > 0, got {shot_offset!r}.")
            value = torch.tensor(math.log(shot_offset))
            if self.learned:
                self.log_shot_offset = nn.Parameter(value)
            else:
                del self.log_shot_offset
                self.register_buffer("log_shot_offset", value)
        if self.steps_itself:
            self._check_prior_step()

    @property
    def steps_itself(self) -> bool:
        """Whether it is learned by plain SGD at its own rate; else by the main optimiser."""
        return self.own_rate and self.lr is not None

    @abstractmethod
    def forward(self, task: Float[Tensor, "*task dim"]) -> Posterior:
        """q(alpha | task), of batch shape (*task, size), from the tasks' prototypes (M3)."""

    def sample(
        self, q: Posterior, noise: Float[Tensor, "*draws size"]
    ) -> Float[Tensor, "*draws size"]:
        r"""$\alpha$, or its logarithm, is $\mu + \sigma \odot \epsilon$ (M12)."""
        value = q.loc + q.scale * noise.to(q.loc, non_blocking=True)
        return value.exp() if isinstance(q, LogNormal) else value

    @property
    def shot_offset(self) -> float | None:
        """The $b$ of the shot law (M23); `None` when the scale knows nothing of shots."""
        return None if self.log_shot_offset is None else self.log_shot_offset.exp().item()

    def at_shots(
        self,
        logits: Float[Tensor, "*batch query way"],
        labels: Integer[Tensor, "task support"],
    ) -> Float[Tensor, "*batch query way"]:
        """Class scores at the scale that each class's number of supports deserves (M23, M24)."""
        if self.log_shot_offset is None:
            return logits
        count = class_counts(labels, logits.shape[-1])
        factor = shot_factor(count.to(logits), self.log_shot_offset.exp())
        return tempered(logits, factor.unsqueeze(-2))

    def kl(self, q: Posterior) -> Float[Tensor, "*task"]:
        """KL from the prior, summed over dimensions (M11); zero when there is no prior."""
        if self.kl_weight == 0:
            return q.loc.new_zeros(q.batch_shape[:-1])
        return gaussian_kl(q.loc, q.scale, self.prior_loc, self.prior_scale).sum(-1)

    def penalty(self, q: Posterior) -> Float[Tensor, "*task"]:
        """`kl_weight` times the KL: what to add to the query-summed likelihood of each task."""
        return self.kl_weight * self.kl(q)

    def optimizer(self, queries_per_task: int) -> SGD:
        """Plain SGD at the scaler's own rate, on the query-summed likelihood (M13).

        Args:
            queries_per_task: Over all classes. The loss is a mean over queries, so the rate takes
                the factor, and one backward pass serves all parameters.
        """
        if queries_per_task < 1:
            raise ValueError(f"Expected queries_per_task >= 1, got {queries_per_task!r}.")
        if self.lr is None or not self.own_rate:
            raise ValueError(
                f"{type(self).__name__} has no optimiser of its own; use `follow`, or give its "
                "parameters to the main optimiser."
            )
        optimizer = SGD(self.posterior_parameters(), lr=self.lr * queries_per_task)
        self.project_after(optimizer)
        return optimizer

    def project_after(self, optimizer: Optimizer) -> None:
        """Project the parameters whenever an optimiser that learns them has stepped."""
        optimizer.register_step_post_hook(lambda *_: self.project_())

    def follow(self, optimizer: Optimizer, queries_per_task: int) -> None:
        """Learn beside an optimiser that is already there: whenever it steps, so does the scaler.

        The parameters join it as a group, so that its `zero_grad`, gradient scaling and skipped
        steps hold for them too. A scaler with a rate of its own then takes its own plain SGD step
        instead of the optimiser's, at a rate that no scheduler changes. Call this before you make
        a scheduler.

        Args:
            optimizer: Optimiser of the embedding.
            queries_per_task: Queries per task; the loss is taken to be a mean over them.
        """
        parameters = self.posterior_parameters()
        own = self.optimizer(queries_per_task) if self.steps_itself and parameters else None
        for group in self.param_groups(everything=True):
            optimizer.add_param_group(group)
        if own is None:
            self.project_after(optimizer)
            return
        kept: list[Tensor | None] = []

        def hide(*_: Any) -> None:
            kept[:] = [p.grad for p in parameters]
            for p in parameters:
                p.grad = None

        def step(*_: Any) -> None:
            for p, gradient in zip(parameters, kept, strict=True):
                p.grad = gradient
            own.step()

        optimizer.register_step_pre_hook(hide)
        optimizer.register_step_post_hook(step)

    def posterior_parameters(self) -> list[nn.Parameter]:
        """All that q depends on; a rate of the scaler's own is the rate of these."""
        return [p for p in self.parameters() if p is not self.log_shot_offset]

    def param_groups(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """What the main optimiser learns, as groups without weight decay.

        Args:
            everything: Also what the scaler learns by steps of its own.
        """
        groups: list[dict[str, Any]] = []
        if isinstance(self.log_shot_offset, nn.Parameter):
            groups.append({"params": [self.log_shot_offset], "weight_decay": 0.0})
        if (everything or not self.steps_itself) and (own := self.posterior_parameters()):
            rate = {} if self.lr is None else {"lr": self.lr}
            groups.append({"params": own, "weight_decay": 0.0, **rate})
        return groups

    @torch.no_grad()
    def project_(self) -> None:
        """Bring parameters back into their domain after a step; most have nothing to do."""

    def _check_prior_step(self, bound: float = 2.0) -> None:
        r"""Refuse a rate at which the prior alone makes the posterior diverge (M13).

        A step multiplies $\mu - \mu_0$ by $1 - l_\psi w / \sigma_0^2$; at a factor of -1 or below
        it grows without end. A learned $\sigma$ has twice the curvature, hence half the bound.
        """
        assert self.lr is not None
        step = self.lr * self.kl_weight / self.prior_scale**2
        if step >= bound:
            limit = bound * self.prior_scale**2 / self.kl_weight
            raise ValueError(
                f"Expected lr * kl_weight / prior_scale² < {bound:g}, got {step:g}: each step "
                f"would multiply the distance from the prior by {1 - 2 * step / bound:g} and "
                f"diverge. Use lr < {limit:g}, a smaller kl_weight, or a larger prior_scale."
            )

    def _resolved_weight(self, weight: float | str, n_tasks: float | None) -> float:
        if weight == "elbo":
            if self.local and n_tasks is None:
                return 1.0
            if self.local or n_tasks is None or not 0 < n_tasks < float("inf"):
                need = "no number" if self.local else "the number"
                raise ValueError(
                    f'kl_weight="elbo" needs {need} of training tasks, got n_tasks={n_tasks}. '
                    "Give n_tasks if they share an alpha (local = False), or a number as kl_weight."
                )
            return 1 / n_tasks
        if isinstance(weight, str) or not 0 <= weight < float("inf"):
            raise ValueError(f'Expected a finite kl_weight >= 0 or "elbo", got {weight!r}.')
        return float(weight)

    def _settings(self) -> Iterator[str]:
        yield f"size={self.size}"
        if self.kl_weight:
            yield f"prior=N({self.prior_loc:g}, {self.prior_scale:g}²)"
            yield f"kl_weight={self.kl_weight:g}"
        if self.lr is not None:
            yield f"lr={self.lr:g}"

    def extra_repr(self) -> str:
        """Settings, for `repr`."""
        offset = [] if self.shot_offset is None else [f"shot_offset={self.shot_offset:.3g}"]
        return ", ".join([*self._settings(), *offset])


def prior_spread(prior_scale: PriorScale, dim: int) -> float:
    """The number that a prior's spread means for embeddings of a size."""
    if isinstance(prior_scale, str):
        if prior_scale != "sqrt":
            raise ValueError(f'Expected prior_scale to be a number or "sqrt", got {prior_scale!r}.')
        return math.sqrt(dim)
    return float(dim) if prior_scale is None else prior_scale


def check_scale(scale: float, kl_weight: float) -> None:
    """Refuse a posterior spread that is no standard deviation, or makes the KL infinite."""
    if not 0 <= scale < float("inf"):
        raise ValueError(f"Expected a standard deviation scale >= 0, got {scale!r}.")
    if scale == 0 and kl_weight:
        raise ValueError(
            f"Expected scale > 0 with a prior (kl_weight={kl_weight:g}): the KL of a point is "
            "infinite. Use a small positive scale, or kl_weight=0."
        )


def clamp_through(x: Tensor, *, low: float | None = None, high: float | None = None) -> Tensor:
    """Clamp, with the gradient of the identity: what is beyond the bound can come back."""
    return x.clamp(low, high).detach() + (x - x.detach())


def check_finite(**values: float) -> None:
    """Refuse NaN and infinity."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"Expected a finite {name}, got {value!r}.")
