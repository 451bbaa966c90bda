"""TADAM: a prototypical network whose backbone adapts to the task.

Oreshkin, Rodriguez, Lacoste: "TADAM: Task dependent adaptive metric for improved few-shot
learning" (NeurIPS 2018). Where its text and its code differ, the code is the default here.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from varscale.core.episode import Episode
from varscale.functional import Condition, class_means
from varscale.hosts.base import HOSTS
from varscale.hosts.prototypical import PrototypicalNetwork


@HOSTS.register("tadam")
class Tadam(PrototypicalNetwork):
    r"""Embed the supports, turn their mean into a condition, embed everything again under it.

    Without a scaler the logits are $-s \lVert q_j - c_k \rVert$ of raw embeddings with a fixed
    $s$, 7.5 as found for 5 shots by cross-validation; for one shot use 1. With a scaler they are
    those of a scaled prototypical network on the conditioned embeddings.

    Args:
        backbone: A network that takes a condition and lists the modulated layers in
            `film_channels`, such as `resnet12`.
        penalty_weight: Weight of the squared post-multipliers in the loss.
        **host: Arguments of `PrototypicalNetwork` and `Host`: metric, normalize, kappa, bn_pass,
            legacy_alpha_grad.
    """

    conditioned = True
    default_metric = "norm"
    default_scale = 7.5

    def __init__(self, backbone: nn.Module, *, penalty_weight: float = 0.01, **host: Any) -> None:
        super().__init__(backbone, **host)
        channels = getattr(backbone, "film_channels", None)
        if not channels:
            raise ValueError(
                f"TADAM needs a backbone that can be conditioned, got {type(backbone).__name__} "
                "without film_channels. Use resnet12."
            )
        if not 0 <= penalty_weight < float("inf"):
            raise ValueError(f"Expected penalty_weight >= 0, got {penalty_weight!r}.")
        self.penalty_weight = penalty_weight
        self.gammas = nn.ModuleList(TaskEmbedding(self.out_dim, n) for n in channels)
        self.betas = nn.ModuleList(TaskEmbedding(self.out_dim, n) for n in channels)

    def embed(
        self, episode: Episode
    ) -> tuple[Float[Tensor, "task support dim"], Float[Tensor, "task query dim"]]:
        """Embed supports and queries under the condition that the supports give."""
        plain = self.embed_items(episode.support)
        centres = class_means(plain, episode.support_labels, episode.n_way)
        return self.embed_both(episode, self.condition(centres.mean(-2)))

    def condition(self, task: Float[Tensor, "task dim"]) -> Condition:
        """Gamma and beta of each layer, from the mean of the classes' unconditioned prototypes."""
        task = task.to(next(self.gammas.parameters()).dtype)
        layers: Any = zip(self.gammas, self.betas, strict=True)
        found: list[tuple[Tensor, Tensor]] = []
        for _, alike in groupby(layers, key=lambda pair: pair[0].channels):  # layers of one block
            numbers = task_embeddings([network for pair in alike for network in pair], task)
            found += zip(numbers[0::2], numbers[1::2], strict=True)
        return found

    def penalty(self) -> Float[Tensor, ""]:
        r"""$\frac{w}{2} \sum m^2$ over the 24 post-multipliers."""
        networks = (*self.gammas, *self.betas)
        multipliers = torch.stack([network.post_multiplier for network in networks])
        return self.penalty_weight / 2 * multipliers.square().sum()


class TaskEmbedding(nn.Module):
    """Map a task to one number per channel: three layers, two of them with a skip, and SiLU.

    The result is multiplied by one learned number, the post-multiplier. Its initial value is 0, so
    training begins with the unconditioned network. `task_embeddings` computes several at once.
    """

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.layers = nn.ModuleList(_layer(n, channels) for n in (dim, channels, channels))
        self.post_multiplier = nn.Parameter(torch.zeros(()))


def task_embeddings(
    networks: Sequence[TaskEmbedding], task: Float[Tensor, "task dim"]
) -> Float[Tensor, "network task channel"]:
    """Compute gammas and betas of networks of one shape together, in three matrix products."""
    x = task.expand(len(networks), *task.shape)
    for number in range(3):
        layers: list[Any] = [network.layers[number] for network in networks]
        weight = torch.stack([layer.weight for layer in layers])
        bias = torch.stack([layer.bias for layer in layers]).unsqueeze(1)
        skip = x if number else 0
        x = torch.baddbmm(bias, x, weight.mT) + skip
        x = F.silu(x) if number < 2 else x
    multipliers = torch.stack([network.post_multiplier for network in networks])
    return multipliers[:, None, None] * x


def _layer(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=(0.2 / outputs) ** 0.5)  # as for the convolutions
    nn.init.zeros_(layer.bias)
    return layer
