"""The loss of a run's tasks, with everything that is logged."""

import torch
from torch import Tensor, nn

from varscale.core.episode import Episode
from varscale.model import ScaledModel

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of a scale's entries that are logged."""


class TaskLoss(nn.Module):
    """`ScaledModel.loss` as a forward of plain tensors, which is what Fabric and DDP can wrap."""

    def __init__(self, model: ScaledModel, seed: int) -> None:
        super().__init__()
        self.model, self.seed = model, seed

    def forward(self, index: int, n_way: int, **tensors: Tensor) -> dict[str, Tensor]:
        """The loss of the tasks from `index` on, its terms, the accuracy and the scale."""
        episode = Episode.trust(**tensors, n_way=n_way)
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
        offset = self.model.shot_offset
        shots = {} if offset is None else {"shot_offset": offset.detach()}
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
