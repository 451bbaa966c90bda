"""The prior: what base classes teach a classifier of new classes."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.core.tensors import is_readable
from varscale.evaluation.conformal import LEVELS, Conformity
from varscale.functional import Whitening, class_variances
from varscale.functional.prototypes import EPS
from varscale.learn.quadrature import LARGEST_POWER, LEAST_TYPICAL

ORDINARY = 1e10
"""Embeddings whose largest number is above it, or below one over it, are divided first."""
LARGEST = 1e300
"""Largest number allowed in embeddings: sums of larger ones may be infinite."""

NUMBERS = (
    "mean", "std", "shot_offset", "query_power", "top", "within", "between", "dimensions", "spread",
    "n_classes", "n_items", "adapts", "unit",
)  # fmt: skip
REACH = 0.5
"""How far variances of a task may differ from the base classes', in their logarithm (M39)."""
LARGEST_SCATTER = 10.0
"""Variance within classes, in units of that between them, at most: noise may hide the latter."""
BROAD, BROAD_SPREAD = 15.0, 1.0
"""Scale without base classes: about what sentence embeddings need; and how far it may differ."""


@dataclass(frozen=True, eq=False)
class Prior:
    """What base classes teach about classes of the same embedding model.

    Attributes:
        whitening: Origin and axes of the embeddings (M28).
        mean: Posterior mean of the scale, at very many shots.
        std: Its posterior standard deviation.
        shot_offset: b of the law n / (n + b) by which the scale grows with shots (M23).
        query_power: How fast the scale falls as a query resembles its class more (M41).
        top: Similarity of a query and its likeliest class at which it is the scale.
        within: Variance within classes, over all dimensions, of whitened embeddings.
        between: Variance between classes; 0 when it is not known.
        dimensions: Dimensions that the variance within classes fills.
        spread: How far the scale of a task may differ if it lies where the base classes do, as a
            standard deviation of its logarithm; at 0 it never differs.
        name_gap: From class means to the names of classes, on average, among whitened embeddings;
            `None` when base classes had no names.
        conformity: How similar items of held-out classes are to their own prototype; `None` when
            there were too few classes to hold any out.
        n_classes: Base classes it was learned on; 0 when it was not learned.
        n_items: Items of these that taught it; a sample if there were very many.
        adapts: Whether a task's own examples update it.
        unit: Power of two by which embeddings are divided first, if their size is unusual.
    """

    whitening: Whitening
    mean: float
    std: float = 0.0
    shot_offset: float = 0.0
    query_power: float = 0.0
    top: float = 1.0
    within: float = 0.0
    between: float = 0.0
    dimensions: float = 1.0
    spread: float = 0.0
    name_gap: Float[Tensor, " dim"] | None = None
    conformity: Conformity | None = None
    n_classes: int = 0
    n_items: int = 0
    adapts: bool = False
    unit: float = 1.0

    @property
    def dim(self) -> int:
        """Embedding size."""
        return len(self.whitening.mean)

    def embed(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Whiten embeddings; rows of unusual size are divided by a power of two of their own."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        if self.unit != 1:
            x = x.double() / self.unit
        z, mean = self.whitening(x.to(dtype)), self.whitening.mean.double()
        largest = x.abs().amax(-1, keepdim=True).double().clamp_min(mean.abs().max())
        unit = unit_of(largest)
        if is_readable(unit) and (unit != 1).any():
            smaller = Whitening(torch.zeros_like(mean), self.whitening.matrix)
            z = z.where(unit == 1, smaller(x.double() / unit - mean / unit).to(dtype))
        return z

    def variances(
        self,
        spread: Float[Tensor, "*task"],
        square: Float[Tensor, "*task"],
        count: Float[Tensor, "*task way"],
    ) -> tuple[Float[Tensor, "*task"], Float[Tensor, "*task"]]:
        """Variances between and within the classes of a task (M39).

        Without base classes, those of its examples: infinite where each class has one, since they
        do not tell. If examples change nothing, the base classes'.

        Args:
            spread: Variance of the class means.
            square: Squared distances of examples and their class means, summed.
            count: Examples of each class.
        """
        if not self.adapts:
            return torch.full_like(spread, self.between), torch.full_like(spread, self.within)
        if not self.between:
            degrees = (count - 1).clamp_min(0).sum(-1)
            noise = torch.where(degrees > 0, square / degrees, torch.inf)
            between = spread - noise * count.reciprocal().mean(-1)
            return torch.maximum(between, noise / LARGEST_SCATTER), noise
        base = {"between": self.between, "within": self._least_within}
        b, s = class_variances(
            spread, square, count, **base, dimensions=self.dimensions, reach=REACH
        )
        return b * base["between"], s * base["within"]

    def spread_factor(
        self, between: Float[Tensor, "*task"], within: Float[Tensor, "*task"]
    ) -> Float[Tensor, "*task"]:
        """Factor of the scale for a task with these variances (M39)."""
        if not (self.adapts and self.between):
            return torch.ones_like(between)
        total = self.between + self._least_within
        return (between / self.between * (between + within) / total).sqrt()

    @property
    def _least_within(self) -> float:
        """Variance within base classes, above 0."""
        return max(self.within, EPS * self.between)

    def scale_spread(self, shift: Float[Tensor, "*task"]) -> Float[Tensor, "*task"]:
        """How far the scale of a task may differ, by its distance from the base classes (M39)."""
        if not (self.adapts and self.spread):
            return torch.zeros_like(shift)
        moved = shift if self.n_classes else torch.zeros_like(shift)
        return (self.spread**2 + moved).sqrt()

    def floor(self, count: Int[Tensor, " way"], share: float) -> Float[Tensor, " way"]:
        """Similarity below which a class rejects a query, by its number of supports (M29).

        At most a `share` of the queries of known classes is rejected.
        """
        conformity = self._conformity(count, share, "Nothing is rejected at", "reject")
        return conformity.thresholds(count, share)

    def set_thresholds(
        self, count: Int[Tensor, " way"], error: float
    ) -> tuple[Float[Tensor, " way"], Float[Tensor, " way"]]:
        """Smallest similarity and smallest probability of a class in a prediction set (M42)."""
        conformity = self._conformity(count, error, "Sets may miss more than", "error")
        return conformity.set_thresholds(count, error)

    def _conformity(
        self, count: Int[Tensor, " way"], share: float, fails: str, name: str
    ) -> Conformity:
        """What held-out classes told; warn if they are too few to tell about such a share."""
        if not (isinstance(share, Real) and 0 < share < 1):
            raise ValueError(f"Expected a share of queries between 0 and 1, got {share!r}.")
        if self.conformity is None:
            raise ValueError(
                "Unknown items and sets of classes need a prior learned on at least 10 classes of "
                "two or more examples each, and this one was not. Learn one on other classes, and "
                "fit with it: prior=, or --prior of varscale fit."
            )
        if share <= (least := self.conformity.smallest_share(count)):
            warnings.warn(
                f"{fails} {share:g}: only {round(1 / least) - 1} base classes have enough examples "
                f"to set a threshold, so {name} must be above {least:.3g}.",
                stacklevel=4,
            )
        return self.conformity

    def tensors(self) -> dict[str, Tensor]:
        """Tensors to store, by name."""
        tensors = {"origin": self.whitening.mean}
        if self.whitening.matrix is not None:
            tensors["matrix"] = self.whitening.matrix
        if self.name_gap is not None:
            tensors["name_gap"] = self.name_gap
        if self.conformity is not None:
            tensors["shots"] = self.conformity.shots
            tensors["quantiles"] = self.conformity.quantiles
            tensors["set_similarity"] = self.conformity.set_similarity
            tensors["set_odds"] = self.conformity.set_odds
            tensors["fold_classes"] = self.conformity.n_classes
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    def facts(self) -> dict[str, Any]:
        """Numbers to store, by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    @classmethod
    def restore(cls, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Prior":
        """Read what `facts` and `tensors` gave."""
        whitening = Whitening(tensors["origin"], tensors.get("matrix"))
        conformity = None
        if "quantiles" in tensors:
            names = ("shots", "quantiles", "set_similarity", "set_odds", "fold_classes")
            conformity = Conformity(*(tensors[name] for name in names))
        numbers, gap = {name: facts[name] for name in NUMBERS}, tensors.get("name_gap")
        prior = cls(whitening, conformity=conformity, name_gap=gap, **numbers)
        prior.check()
        return prior

    def check(self) -> None:
        """Raise ValueError if any value cannot come from learning: a file may hold anything."""
        numbers, dim = self.facts(), self.dim
        signed = {"query_power"}
        if not all(
            isinstance(n, int | float) and math.isfinite(n) and (n >= 0 or name in signed)
            for name, n in numbers.items()
        ):
            raise ValueError(f"expected finite, non-negative values, got {numbers}")
        if any(not t.isfinite().all() for t in self.tensors().values()):
            raise ValueError("expected finite tensors")
        if self.n_classes != int(self.n_classes) or self.n_classes == 1:
            raise ValueError(f"expected 0 or at least 2 classes, got {self.n_classes}")
        if self.adapts not in (True, False):
            raise ValueError(f"expected adapts to be true or false, got {self.adapts}")
        matrix = self.whitening.matrix
        if 0 in (self.mean, self.unit):
            raise ValueError("a scale or a unit of 0")
        if not (LEAST_TYPICAL <= self.top <= 1 and abs(self.query_power) <= LARGEST_POWER):
            raise ValueError(f"a factor of queries that is too large: {self.top, self.query_power}")
        if matrix is not None and matrix.shape != (dim, dim):
            raise ValueError("a whitening of the wrong size")
        if self.name_gap is not None and self.name_gap.shape != (dim,):
            raise ValueError("a gap of names of the wrong size")
        if self.conformity is not None:
            shots, classes = self.conformity.shots, self.conformity.n_classes
            known = self.conformity
            for table in (known.quantiles, known.set_similarity, known.set_odds):
                if table.shape != (len(shots), LEVELS) or not len(shots):
                    raise ValueError("quantiles have the wrong size")
            if classes.shape != shots.shape or (classes < 1).any() or (shots.diff() < 1).any():
                raise ValueError("expected increasing shots, with at least one class each")

    def __repr__(self) -> str:
        if not self.n_classes:
            kind = "a guess, to be corrected by examples" if self.adapts else "fixed"
            return f"Prior(scale {self.mean:.3g}, {kind})"
        return (
            f"Prior(scale {self.mean:.3g} ± {self.std:.2g}, times n / (n + {self.shot_offset:.2g}) "
            f"at n shots, learned on {self.n_classes} classes)"
        )


def unit_of(largest: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Power of two to divide numbers of unusual size by, which is exact; 1 for the others."""
    unusual = (largest > ORDINARY) | ((largest > 0) & (largest < 1 / ORDINARY))
    return torch.where(unusual, largest / (2 * torch.frexp(largest).mantissa), 1.0)


def fixed_prior(value: float, dim: int, unit: float = 1.0) -> Prior:
    """Make a prior of a given scale for the plain cosine, which no example changes."""
    if not 0 < value < math.inf:
        raise ValueError(f"Expected a scale > 0, got {value!r}.")
    return Prior(Whitening(torch.zeros(dim)), float(value), unit=unit)


def broad_prior(dim: int, unit: float = 1.0) -> Prior:
    """Make a prior that knows little: a task's own examples tell origin and scale."""
    whitening = Whitening(torch.zeros(dim))
    return Prior(whitening, BROAD, shot_offset=0.5, spread=BROAD_SPREAD, adapts=True, unit=unit)
