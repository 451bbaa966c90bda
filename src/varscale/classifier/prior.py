"""The prior: what base classes teach a classifier of new classes."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from varscale.backbones import Identity
from varscale.core.tensors import is_readable
from varscale.evaluation.conformal import LEVELS, Conformity
from varscale.functional import Whitening, origin_factor
from varscale.hosts import PrototypicalNetwork
from varscale.model.head import Scale, log_probabilities
from varscale.scalers.posterior import gaussian

ORDINARY = 1e10
"""Embeddings whose largest number is above it, or below one over it, are divided first."""
LARGEST = 1e300
"""Largest number allowed in embeddings: sums of larger ones may be infinite."""

NUMBERS = ("mean", "std", "shot_offset", "n_classes", "centred")


@dataclass(frozen=True, eq=False)
class WeightedCosine:
    """The cosine of whitened embeddings, with a weight for each dimension.

    Attributes:
        whitening: Applied to embeddings first.
        weight: Weight of each dimension, 1 on average; one entry when all are equal.
    """

    whitening: Whitening
    weight: Float[Tensor, " size"]

    @property
    def host(self) -> PrototypicalNetwork:
        """Compares whitened embeddings with class means."""
        return _host(len(self.whitening.mean))

    def embed(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Whiten embeddings; rows of unusual size are divided by a power of two."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        z, mean = self.whitening(x.to(dtype)), self.whitening.mean.double()
        largest = x.abs().amax(-1, keepdim=True).double().clamp_min(mean.abs().max())
        unit = unit_of(largest)
        if is_readable(unit) and (unit != 1).any():
            smaller = Whitening(torch.zeros_like(mean), self.whitening.matrix)
            z = z.where(unit == 1, smaller(x.double() / unit - mean / unit).to(dtype))
        return z

    def references(self, centres: Float[Tensor, "task way dim"]) -> Float[Tensor, "task way dim"]:
        """Class means as queries are compared with them."""
        labels, n_way = _labels(centres), centres.shape[1]
        return self.host.references(self.embed(centres), labels, n_way=n_way)

    def similarity(
        self, query: Float[Tensor, "task query dim"], references: Float[Tensor, "task way dim"]
    ) -> Float[Tensor, "task query way"]:
        """Similarity of queries and `references`, before any scale."""
        query, labels = self.embed(query), _labels(references)
        n_way = references.shape[1]
        return self.host.logits(query, references, labels, self.weight.to(query), n_way=n_way)


def _labels(centres: Tensor) -> Tensor:
    tasks, way, _ = centres.shape
    return torch.arange(way, device=centres.device).expand(tasks, way)


@lru_cache
def _host(dim: int) -> PrototypicalNetwork:
    return PrototypicalNetwork(Identity(dim), metric="cosine")


@dataclass(frozen=True, eq=False)
class Prior:
    """What base classes teach about classes of the same embedding model: a metric and its scale.

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

    metric: WeightedCosine
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

    def scale(self, own: Bool[Tensor, " way"] | None = None) -> Scale:
        """The posterior of the scale, with the laws of shots (M23) and origin (M31).

        Args:
            own: Whether each class is one of the base classes, among which the origin lies; none is
                when not given. The factor is common to all: it must not change the order.
        """
        weight = self.metric.weight.double()
        origin: Tensor | float = 1.0
        if self.centred:
            ours, others = (origin_factor(self.n_classes, own=mine) for mine in (True, False))
            share = 0.0 if own is None else own.double().mean()
            origin = share * ours + (1 - share) * others
        q = gaussian(self.mean * weight, self.std * weight)
        return Scale(q, self.shot_offset, origin)

    def log_probabilities(
        self,
        query: Float[Tensor, "task query dim"],
        references: Float[Tensor, "task way dim"],
        count: Int[Tensor, " way"],
        own: Bool[Tensor, " way"] | None = None,
    ) -> Float[Tensor, "task query way"]:
        """Log-probabilities of the queries' classes, from the `metric.references` of these.

        `count` is the number of examples of each class; for `own` see `scale`.
        """
        scale, query, n_way = self.scale(own), self.metric.embed(query), references.shape[1]
        task = query, references, _labels(references)
        return log_probabilities(self.metric.host, scale, *task, n_way=n_way, count=count)

    def floor(self, count: Int[Tensor, " way"], share: float) -> Float[Tensor, " way"]:
        """Similarity below which a class rejects a query, by its number of supports (M29).

        At most a `share` of the queries of known classes is rejected.
        """
        if not 0 < share < 1:
            raise ValueError(f"Expected reject between 0 and 1, a share of queries, got {share!r}.")
        if self.conformity is None:
            raise ValueError(
                "To reject, a prior must have been learned on at least 10 classes of two or more "
                f"examples; this is {self!r}. Pass one learned on other classes as prior."
            )
        if share <= (least := self.conformity.smallest_share(count)):
            warnings.warn(
                f"Nothing is rejected at {share:g}: only {round(1 / least) - 1} base classes have "
                f"enough examples to set a threshold, so reject must be above {least:.3g}.",
                stacklevel=4,
            )
        return self.conformity.thresholds(count, share)

    def tensors(self) -> dict[str, Tensor]:
        """Tensors to store, by name."""
        tensors = {"mean": self.metric.whitening.mean, "weight": self.metric.weight}
        if self.metric.whitening.matrix is not None:
            tensors["matrix"] = self.metric.whitening.matrix
        if self.conformity is not None:
            tensors["shots"] = self.conformity.shots
            tensors["quantiles"] = self.conformity.quantiles
            tensors["fold_classes"] = self.conformity.n_classes
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    def facts(self) -> dict[str, Any]:
        """Numbers to store, by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    @classmethod
    def restore(cls, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Prior":
        """Read what `facts` and `tensors` gave."""
        whitening = Whitening(tensors["mean"], tensors.get("matrix"))
        metric = WeightedCosine(whitening, tensors["weight"])
        conformity = None
        if "quantiles" in tensors:
            conformity = Conformity(tensors["shots"], tensors["quantiles"], tensors["fold_classes"])
        prior = cls(metric, conformity=conformity, **{name: facts[name] for name in NUMBERS})
        prior.check()
        return prior

    def check(self) -> None:
        """Raise ValueError if any value cannot come from learning: a file may hold anything."""
        numbers, dim = self.facts(), self.dim
        if not all(isinstance(n, int | float) and 0 <= n < math.inf for n in numbers.values()):
            raise ValueError(f"expected finite, non-negative values, got {numbers}")
        if any(not t.isfinite().all() for t in self.tensors().values()):
            raise ValueError("expected finite tensors")
        if self.n_classes != int(self.n_classes) or self.n_classes == 1:
            raise ValueError(f"expected 0 or at least 2 classes, got {self.n_classes}")
        if self.centred not in (True, False) or self.centred > self.n_classes:
            raise ValueError("an origin at the mean of classes needs classes")
        matrix, weight = self.metric.whitening.matrix, self.metric.weight
        if self.mean == 0 or (matrix is not None and matrix.shape != (dim, dim)):
            raise ValueError("a scale of 0, or a whitening of the wrong size")
        if weight.ndim != 1 or len(weight) not in (1, dim) or not (weight >= 0).all():
            raise ValueError("weights have the wrong size, or are negative")
        if self.conformity is not None:
            shots, classes = self.conformity.shots, self.conformity.n_classes
            if self.conformity.quantiles.shape != (len(shots), LEVELS) or not len(shots):
                raise ValueError("quantiles have the wrong size")
            if classes.shape != shots.shape or (classes < 1).any() or (shots.diff() < 1).any():
                raise ValueError("expected increasing shots, with at least one class each")

    def __repr__(self) -> str:
        learned = f"learned on {self.n_classes} classes" if self.n_classes else "not learned"
        return (
            f"Prior(scale {self.mean:.3g} ± {self.std:.2g}, "
            f"times n / (n + {self.shot_offset:.2g}) at n shots, {learned})"
        )


def unit_of(largest: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Power of two to divide numbers of unusual size by, which is exact; 1 for the others."""
    unusual = (largest > ORDINARY) | ((largest > 0) & (largest < 1 / ORDINARY))
    return torch.where(unusual, largest / (2 * torch.frexp(largest).mantissa), 1.0)


def fixed_prior(value: float, dim: int, *, shot_offset: float = 0.0) -> Prior:
    """Make a prior of a given scale, for the plain cosine."""
    if not 0 < value < math.inf:
        raise ValueError(f"Expected a scale > 0, got {value!r}.")
    metric = WeightedCosine(Whitening(torch.zeros(dim)), torch.ones(1))
    return Prior(metric, float(value), 0.0, shot_offset, None, 0, centred=False)
