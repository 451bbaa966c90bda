"""Give the losses of other libraries a learned scale in place of their own constant."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from varscale.plug.logit_scale import LogitScale

MARGIN_LOSSES = ("ArcFaceLoss", "CosFaceLoss")
"""Losses of pytorch-metric-learning that lower the cosine of a row's own class."""

TEMPERATURE_LOSSES = ("NTXentLoss", "SupConLoss", "NormalizedSoftmaxLoss")
"""Losses of pytorch-metric-learning that are a cross-entropy of cosines over a temperature."""

RANKING_LOSSES = ("MultipleNegativesRankingLoss",)
"""Loss of sentence-transformers that is a cross-entropy of cosines times a scale."""


class ScaledLoss(nn.Module):
    """A loss with a `LogitScale` in place of its constant; `scaled` makes it.

    Args:
        loss: The loss.
        scale: Its scale; `parameters()` lists both.
    """

    def __init__(self, loss: Any, scale: LogitScale) -> None:
        super().__init__()
        self.loss, self.scale = loss, scale

    def forward(self, *args: Any, **named: Any) -> Tensor:
        """The loss of a batch, plus the KL of the scale."""
        value: Tensor = self.loss(*args, **named)
        return value + self.scale.kl()


class ScaledMarginLoss(ScaledLoss):
    """The same for a loss with a margin, whose scale learns from the cosines without it (M36).

    A margin makes the right class look worse than it is. A scale that learned from that would fall
    until nothing is learned any more.
    """

    def forward(self, embeddings: Tensor, labels: Tensor, *args: Any, **named: Any) -> Tensor:
        """The loss of a batch, plus the KL of the scale."""
        self.loss.cast_types(embeddings.dtype, embeddings.device)  # as the loss does, but before
        cosines = self.loss.get_cosine(embeddings).detach()
        likelihood = F.cross_entropy(self.scale(cosines), labels.to(embeddings.device))
        value = super().forward(embeddings, labels, *args, **named)
        return value + likelihood - likelihood.detach()  # its gradient alone


def scaled(loss: Any, scale: LogitScale | None = None) -> ScaledLoss:
    """Replace the constant scale or temperature of a loss by a learned scale.

    Knows the losses that are a cross-entropy of cosines. Of pytorch-metric-learning: ArcFace (also
    with sub-centres), CosFace, NTXent, SupCon and normalised softmax; of sentence-transformers:
    MultipleNegativesRankingLoss. The constant goes: two scales would multiply.

    Args:
        loss: The loss; it is changed.
        scale: The scale, a new one when not given.

    Raises:
        ValueError: If the loss is another one, compares something other than cosines, or has a
            learned scale already.
    """
    scale = LogitScale() if scale is None else scale
    if _is_one(loss, RANKING_LOSSES):
        similarity = loss.similarity_fct
        if isinstance(similarity, _Scaled):
            raise _twice(loss)
        if (function := getattr(similarity, "__name__", repr(similarity))) != "cos_sim":
            raise ValueError(f"Expected a loss of cosines, got similarity_fct={function}.")
        if (hardness := getattr(loss, "hardness_mode", None)) is not None:
            raise ValueError(
                f"Expected a loss of cosines alone, got hardness_mode={hardness!r}, which adds to "
                "them. Make the loss without it."
            )
        loss.similarity_fct, loss.scale = _Scaled(similarity, scale), 1.0
        return ScaledLoss(loss, scale)
    if not _is_one(loss, MARGIN_LOSSES + TEMPERATURE_LOSSES):
        known = ", ".join(MARGIN_LOSSES + TEMPERATURE_LOSSES + RANKING_LOSSES)
        raise ValueError(
            f"Expected one of {known}, got {type(loss).__name__}. In a loss of your own, multiply "
            "the cosines by a `LogitScale` and add its `kl()`."
        )
    if not _compares_cosines(distance := loss.distance):
        raise ValueError(
            f"Expected a loss of cosines, got {type(loss).__name__} of {distance!r}. Give it "
            "distance=CosineSimilarity()."
        )
    if _is_one(loss, MARGIN_LOSSES):
        if isinstance(loss.scale_logits, _Times):
            raise _twice(loss)
        loss.scale, loss.scale_logits = 1.0, _Times(scale)
        return ScaledMarginLoss(loss, scale)
    if isinstance(distance.compute_mat, _Scaled):
        raise _twice(loss)
    loss.temperature, loss.distance = 1.0, deepcopy(distance)  # others may use the same distance
    loss.distance.compute_mat = _Scaled(loss.distance.compute_mat, scale)
    return ScaledLoss(loss, scale)


def _is_one(loss: Any, names: tuple[str, ...]) -> bool:
    return any(base.__name__ in names for base in type(loss).__mro__)


def _compares_cosines(distance: Any) -> bool:
    is_dot = type(distance).__name__ in ("CosineSimilarity", "DotProductSimilarity")
    return is_dot and distance.normalize_embeddings and distance.p == 2 and distance.power == 1


def _twice(loss: Any) -> ValueError:
    return ValueError(
        f"Expected a loss with its own constant, got {type(loss).__name__} with a learned scale "
        "already. Use what `scaled` returned for it."
    )


class _Scaled:
    """A function of cosines, scaled; a class, so that copies of a loss have copies of it."""

    def __init__(self, cosines: Callable[..., Tensor], scale: LogitScale) -> None:
        self.cosines, self.scale = cosines, scale
        self.__name__ = f"scaled_{getattr(cosines, '__name__', 'cosines')}"  # for model cards

    def __call__(self, *args: Any) -> Tensor:
        logits: Tensor = self.scale(self.cosines(*args))
        return logits


class _Times:
    """Multiply by the value of a scale, which learns nothing from it."""

    def __init__(self, scale: LogitScale) -> None:
        self.scale = scale

    def __call__(self, cosines: Tensor, *_: Any) -> Tensor:
        return self.scale.alpha.detach().to(cosines.dtype) * cosines
