"""What a classifier of new classes needs from elsewhere: a metric and its scale."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from varscale.alignment import is_readable
from varscale.conformal import LEVELS, Conformity
from varscale.functional import dot_logits, normalize
from varscale.shots import shot_factor
from varscale.whitening import Whitening, origin_factor

GUESS = 20.0
"""The scale when nothing can be learned: what sentence embeddings ask for, more or less."""

ORDINARY = 1e10
"""Embeddings whose largest number is above it, or below one over it, are scaled first."""
LARGEST = 1e300
"""Embeddings with larger numbers are refused: their sum may be infinite."""

NUMBERS = ("mean", "std", "shot_offset", "n_classes", "centred")


@dataclass(frozen=True, eq=False)
class Metric:
    """A weighted cosine of mapped embeddings.

    Attributes:
        whitening: What is done to embeddings first.
        weight: What each dimension counts, 1 on average; of one entry when all count the same.
    """

    whitening: Whitening
    weight: Float[Tensor, " size"]

    def __call__(
        self, query: Float[Tensor, "*#task query dim"], centres: Float[Tensor, "*#task way dim"]
    ) -> Float[Tensor, "*task query way"]:
        """Similarity of embeddings and class means, before any scale."""
        dtype = torch.promote_types(query.dtype, torch.float32)
        query, centres = self._directions(query, dtype), self._directions(centres, dtype)
        return dot_logits(query, centres, self.weight.to(query))

    def _directions(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Mapped embeddings of unit length, whatever the size of a row."""
        z, mean = self.whitening(x.to(dtype)), self.whitening.mean.double()
        largest = x.abs().amax(-1, keepdim=True).double().clamp_min(mean.abs().max())
        unit = unit_of(largest)
        if is_readable(unit) and (unit != 1).any():
            scaled = Whitening(torch.zeros_like(mean), self.whitening.matrix)
            z = z.where(unit == 1, scaled(x.double() / unit - mean / unit).to(dtype))
        return normalize(z)


@dataclass(frozen=True, eq=False)
class LearnedScale:
    """A metric for embeddings of one model, and its scale: what a classifier of new classes needs.

    Attributes:
        metric: The metric.
        mean: Posterior mean of the scale, at very many shots and base classes.
        std: Its posterior standard deviation.
        shot_offset: b of the law n / (n + b) by which the scale grows with shots.
        conformity: How similar items of held-out classes are to their own prototype; `None` when
            there were too few classes to hold any out.
        n_classes: Base classes it was learned on; 0 when it was not learned.
        centred: Whether the origin is the mean of those classes.
    """

    metric: Metric
    mean: float
    std: float
    shot_offset: float
    conformity: Conformity | None
    n_classes: int
    centred: bool

    @property
    def dim(self) -> int:
        """Embedding size."""
        return len(self.metric.whitening.mean)

    def at_shots(
        self, count: Float[Tensor, " way"], own: Bool[Tensor, " way"] | None = None
    ) -> Float[Tensor, " way"]:
        """The scale of classes of so many supports (M23).

        Args:
            count: Supports of each class.
            own: Whether it is one of the base classes, among which the origin lies (M31); none is
                when not given. The factor is common to all: it must not change the order.
        """
        scale = self.mean * shot_factor(count, self.shot_offset)
        if not self.centred:
            return scale
        ours, others = (origin_factor(self.n_classes, own=own) for own in (True, False))
        share = 0.0 if own is None else own.double().mean()
        return scale * (share * ours + (1 - share) * others)

    def floor(self, count: Int[Tensor, " way"], share: float) -> Float[Tensor, " way"]:
        """The similarity below which a class of so many supports calls a query foreign (M29).

        Args:
            count: Supports of each class.
            share: Of queries of known classes that may be rejected.
        """
        if not 0 < share < 1:
            raise ValueError(f"Expected reject between 0 and 1, a share of queries, got {share!r}.")
        if self.conformity is None:
            raise ValueError(
                "To reject, a scale must have been learned on at least 10 classes of two or more "
                f"examples; this is {self!r}. Pass one learned on other classes as scale."
            )
        if share <= (least := self.conformity.smallest_share(count)):
            warnings.warn(
                f"With {round(1 / least) - 1} base classes nothing can be rejected at {share:g}: "
                f"the least share that can be promised is {least:.3g}.",
                stacklevel=4,
            )
        return self.conformity.thresholds(count, share)

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name, to be stored."""
        tensors = {"mean": self.metric.whitening.mean, "weight": self.metric.weight}
        if self.metric.whitening.matrix is not None:
            tensors["matrix"] = self.metric.whitening.matrix
        if self.conformity is not None:
            tensors["shots"] = self.conformity.shots
            tensors["quantiles"] = self.conformity.quantiles
            tensors["fold_classes"] = self.conformity.n_classes
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    def facts(self) -> dict[str, Any]:
        """Its numbers by name, to be stored."""
        return {name: getattr(self, name) for name in NUMBERS}

    @classmethod
    def restored(cls, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "LearnedScale":
        """What was stored."""
        metric = Metric(Whitening(tensors["mean"], tensors.get("matrix")), tensors["weight"])
        conformity = None
        if "quantiles" in tensors:
            conformity = Conformity(tensors["shots"], tensors["quantiles"], tensors["fold_classes"])
        scale = cls(metric, conformity=conformity, **{name: facts[name] for name in NUMBERS})
        scale.check()
        return scale

    def check(self) -> None:
        """Refuse what no learning gives: somebody else's file may hold anything."""
        numbers, dim = self.facts(), self.dim
        if not all(isinstance(n, int | float) and 0 <= n < math.inf for n in numbers.values()):
            raise ValueError(f"numbers that are none: {numbers}")
        if any(not t.isfinite().all() for t in self.tensors().values()):
            raise ValueError("tensors with NaN or infinity")
        if self.n_classes != int(self.n_classes) or self.n_classes == 1:
            raise ValueError(f"a number of classes that cannot be: {self.n_classes}")
        if self.centred not in (True, False) or self.centred > self.n_classes:
            raise ValueError("an origin that is the mean of no classes")
        matrix, weight = self.metric.whitening.matrix, self.metric.weight
        if self.mean == 0 or (matrix is not None and matrix.shape != (dim, dim)):
            raise ValueError("a scale of 0, or a whitening of another size")
        if weight.ndim != 1 or len(weight) not in (1, dim) or not (weight >= 0).all():
            raise ValueError("weights of another size, or below 0")
        if self.conformity is not None:
            shots, classes = self.conformity.shots, self.conformity.n_classes
            if self.conformity.quantiles.shape != (len(shots), LEVELS) or not len(shots):
                raise ValueError("quantiles of another size")
            if classes.shape != shots.shape or (classes < 1).any() or (shots.diff() < 1).any():
                raise ValueError("numbers of shots or classes that cannot be")

    def __repr__(self) -> str:
        learned = f"learned on {self.n_classes} classes" if self.n_classes else "not learned"
        return (
            f"LearnedScale({self.mean:.3g} ± {self.std:.2g}, "
            f"times n / (n + {self.shot_offset:.2g}) at n shots, {learned})"
        )


def unit_of(largest: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The power of two to divide numbers of unusual size by, which is exact; 1 for the others."""
    unusual = (largest > ORDINARY) | ((largest > 0) & (largest < 1 / ORDINARY))
    return torch.where(unusual, largest / (2 * torch.frexp(largest).mantissa), 1.0)


def given_scale(value: float, dim: int, *, shot_offset: float = 0.0) -> LearnedScale:
    """A scale that nobody learned, of the plain cosine."""
    if not 0 < value < math.inf:
        raise ValueError(f"Expected a scale > 0, got {value!r}.")
    metric = Metric(Whitening(torch.zeros(dim)), torch.ones(1))
    return LearnedScale(metric, float(value), 0.0, shot_offset, None, 0, centred=False)
