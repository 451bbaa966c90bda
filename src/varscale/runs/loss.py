"""A loss and the optimisers that lower it, on whatever devices Fabric has."""

from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from varscale.episode import Episode
from varscale.model import ScaledModel
from varscale.optimization import ClipBy, Schedule, clip_gradients

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Where the distribution of a scale's entries is noted."""


class Update:
    """How one loss changes the weights.

    Args:
        fabric: Already launched.
        loss: Its forward gives named terms, the one to lower being `loss`.
        optimizers: They lower it; without any nothing is learned.
        constant: How many of them, the last ones, keep their rate and are not clipped.
    """

    def __init__(
        self, fabric: Fabric, loss: nn.Module, optimizers: list[Optimizer], *, constant: int = 0
    ) -> None:
        self.fabric = fabric
        self.schedules = [Schedule(o) for o in optimizers[: len(optimizers) - constant]]
        wrapped: Any = fabric.setup(loss, *optimizers) if optimizers else [loss]
        self.loss, self.steppers = wrapped[0], wrapped[1:]
        self.loss.train()

    def apply(
        self, loss: Tensor, *, rate_factor: float, clip: float | None, clip_by: ClipBy
    ) -> None:
        """One step of every optimiser."""
        self.fabric.backward(loss)
        for schedule in self.schedules:
            schedule.set(rate_factor)
            if clip is not None:
                clip_gradients(schedule.optimizer, clip, clip_by)
        for stepper in self.steppers:
            stepper.step()
            stepper.zero_grad()


class TaskLoss(nn.Module):
    """`ScaledModel.loss` as a forward of plain tensors, which is what Fabric and DDP can wrap."""

    def __init__(self, model: ScaledModel, seed: int) -> None:
        super().__init__()
        self.model, self.seed = model, seed

    def forward(self, index: int, n_way: int, **tensors: Tensor) -> dict[str, Tensor]:
        """The loss of the tasks from `index` on, its terms, the accuracy and the scale."""
        episode = Episode.trusted(**tensors, n_way=n_way)
        loss = self.model.loss(episode, index=index, seed=self.seed)
        assert episode.query_labels is not None
        mean = loss.q.mean.detach()
        lowest, highest = mean.aminmax()
        spread = {}
        if mean.shape[-1] > 1:
            at = torch.tensor(QUANTILES).to(mean, non_blocking=True)
            parts = mean.quantile(at, dim=-1).mean(-1)  # over tasks
            spread = {
                f"scale_p{100 * q:02.0f}": value for q, value in zip(QUANTILES, parts, strict=True)
            }
        offset = self.model.scaler.log_shot_offset
        shots = {} if offset is None else {"shot_offset": offset.detach().exp()}
        return {
            "loss": loss.total,
            "nll": loss.nll.mean() / episode.query.shape[1],
            "kl": loss.kl.mean(),
            "aux": loss.aux.mean() / episode.query.shape[1],
            "penalty": loss.penalty,
            "accuracy": (loss.logits.argmax(-1) == episode.query_labels).float().mean(),
            "scale_mean": mean.mean(),
            "scale_spread": loss.q.stddev.detach().mean(),
            "scale_min": lowest,
            "scale_max": highest,
            **spread,
            **shots,
        }
