"""The loss: named terms, summed in one place."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.core.registry import unknown
from varscale.functional import auxiliary_weight, query_nll
from varscale.scalers import Posterior, Scaler

Likelihood = Literal["sum", "mean"]
"""How the likelihood of a task's queries is weighed against its KL.

- `sum`: summed, as the bound has it; the whole objective is then divided by the number of queries.
- `mean`: averaged, as the last released D-AVS script did; the KL weighs as many times more.
"""


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of a batch of tasks and its terms, one value per task.

    Attributes:
        total: The scalar to differentiate: a mean over tasks, per query.
        nll: Negative log-likelihood, summed over queries (M10).
        kl: KL from the prior, summed over dimensions, not yet weighted (M11); 0 without a prior.
        aux: Negative log-likelihood at the auxiliary scale; 0 once its weight has faded.
        penalty: What the host's own weights add, one value for all tasks.
        logits: Class scores of the queries.
        alpha: The scales that were drawn.
        q: The posterior they were drawn from.
    """

    total: Float[Tensor, ""]
    nll: Float[Tensor, " task"]
    kl: Float[Tensor, " task"]
    aux: Float[Tensor, " task"]
    penalty: Float[Tensor, ""]
    logits: Float[Tensor, "task query way"]
    alpha: Float[Tensor, "task size"]
    q: Posterior


@dataclass(frozen=True)
class Objective:
    r"""Negative evidence bound, with the auxiliary loss of D-AVS (M15).

    $J = \frac{1}{q} \big[ (1 - \lambda)(L(\alpha) + w \operatorname{KL}) + \lambda L(a) \big]$,
    averaged over tasks; $L$ is summed over the $q$ queries, $a$ is the auxiliary scale. A host's
    penalty on its own weights is added.

    Args:
        likelihood: See `Likelihood`.
        aux_epochs: $\gamma$, the epochs over which the auxiliary loss fades out; `None` for none.
        aux_scale: $a$: 100 as in the released code; 1, the paper's "no scaling", cannot fit
            normalised embeddings.
        epoch_length: Tasks per epoch. With 1 the weight falls at every task, as in Algorithm 2,
            and `aux_epochs` counts tasks.
    """

    likelihood: Likelihood = "sum"
    aux_epochs: float | None = None
    aux_scale: float = 100.0
    epoch_length: int = 100

    def __post_init__(self) -> None:
        if self.likelihood not in get_args(Likelihood):
            raise unknown("likelihood", self.likelihood, get_args(Likelihood))
        if self.aux_epochs is not None and not self.aux_epochs > 0:
            raise ValueError(f"Expected aux_epochs > 0 or None, got {self.aux_epochs!r}.")
        if not math.isfinite(self.aux_scale):
            raise ValueError(f"Expected a finite aux_scale, got {self.aux_scale!r}.")
        if self.epoch_length < 1:
            raise ValueError(f"Expected epoch_length >= 1, got {self.epoch_length!r}.")

    def __call__(
        self,
        logits_at: Callable[[Tensor | float], Tensor],
        labels: Integer[Tensor, "task query"],
        scaler: Scaler,
        q: Posterior,
        alpha: Float[Tensor, "task size"],
        index: Integer[Tensor, " task"],
        host_penalty: Float[Tensor, ""],
    ) -> Loss:
        """Compute the loss of a batch of tasks.

        Args:
            logits_at: Class scores of the queries as a function of the scale.
            labels: Classes of the queries.
            scaler: Weighs its own KL.
            q: Posterior of the scale of each task.
            alpha: A draw from it.
            index: Number of each task in training, which fixes the weight of the auxiliary loss;
                on the CPU, whatever the device.
            host_penalty: What the host's own weights add to the total.
        """
        logits = logits_at(alpha)
        nll = query_nll(logits, labels)
        kl = scaler.kl(q)
        penalty = scaler.kl_weight * kl
        queries = max(labels.shape[-1], 1)
        total = nll + (penalty if self.likelihood == "sum" else queries * penalty)
        aux = torch.zeros_like(nll)
        if self.aux_epochs is not None:
            weight = auxiliary_weight(index, self.aux_epochs, self.epoch_length)
            if weight.any():
                weight = weight.to(nll, non_blocking=True)
                aux = query_nll(logits_at(self.aux_scale), labels)
                total = (1 - weight) * total + weight * aux
        total = total.mean() / queries + host_penalty
        return Loss(total, nll, kl, aux, host_penalty, logits, alpha, q)

    def scaler_factor(self, queries_per_task: int) -> int:
        """Factor from the loss to the likelihood that a scaler with its own learning rate sees."""
        return queries_per_task if self.likelihood == "sum" else 1
