"""Which classes a query may belong to, if any: conformal thresholds from held-out classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEVELS = 1001
"""Number of quantiles stored for each distribution."""
ROUNDING = 1e-6
"""Allowance for rounding of a similarity, or of a probability relative to its size, in float32;
near-duplicates differ by less."""
SIMILAR = 0.5
"""A set leaves out this share as many true classes for their similarity alone as it does for their
probability alone (M42)."""
WAY_POWER = 0.4
"""Power of the logarithm of the number of classes by which favourable odds shrink (M42)."""
FEWEST = 5
"""Tasks of held-out classes have at least so many classes; fewer count as so many (M42)."""
BOUNDS = (-100.0, 12.0)
"""Least and largest logarithm of p / (1 - p): float32 hardly tells a larger one from 1."""
CERTAIN = 0.99
"""A class of this probability is never left out for it; of fewer classes than `FEWEST`, one that
has all but the error."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Queries of held-out classes, in tasks of one number of shots.

    Attributes:
        shot: Supports of each class.
        similarity: Similarity of each query to the prototype of its own class.
        odds: Odds of its own class, see `class_odds`.
        classes: The class, among all that were held out.
    """

    shot: int
    similarity: Float[Tensor, " query"]
    odds: Float[Tensor, " query"]
    classes: Int[Tensor, " query"]


@dataclass(frozen=True, eq=False)
class Conformity:
    r"""How similar items are to the prototype of their own class, on held-out classes (M29).

    A query is "unknown" if it is less similar to *every* class than all but a small share of known
    items are to their own. A known query is rejected only if its own class rejects it, whatever the
    other classes do, so the share holds for any number of classes.

    Items of one class resemble each other, so classes are exchangeable and items are not. Let each
    of $C$ held-out classes, and a new class of which nothing is known, have the weight
    $1/(C + 1)$. Then at most a share $\delta$ of the new class's items is rejected, if the
    threshold is the quantile at $(\delta (C + 1) - 1) / C$ of the held-out similarities, with equal
    weight for each class.

    Attributes:
        shots: Supports of the prototypes, ascending.
        quantiles: Quantiles of the similarities at each number of shots, at `LEVELS` even steps
            from 0 to 1.
        set_similarity: Smallest similarity to a class in sets, at `LEVELS` even steps of the error.
        set_odds: Smallest odds of a class in sets, likewise.
        n_classes: Held-out classes that had enough items, for each number of shots.
    """

    shots: Int[Tensor, " shot"]
    quantiles: Float[Tensor, "shot level"]
    set_similarity: Float[Tensor, "shot level"]
    set_odds: Float[Tensor, "shot level"]
    n_classes: Int[Tensor, " shot"]

    def smallest_share(self, count: Int[Tensor, " way"]) -> float:
        """Share up to which nothing is rejected, because too few classes were held out."""
        return 1 / (int(self.n_classes[self._row(count)].max()) + 1)

    def thresholds(self, count: Int[Tensor, " way"], share: float) -> Float[Tensor, " way"]:
        """Smallest similarity that each class accepts.

        Args:
            count: Supports of each class. The threshold is that of the largest calibrated number of
                shots up to it: more shots make items more similar, so too few are rejected.
            share: Share of known items that may be rejected.
        """
        row = self._row(count)
        classes = self.n_classes[row].double()
        level = (share * (classes + 1) - 1) / classes
        place = (level * (LEVELS - 1)).long().clamp_min(0)  # round down, to the lower threshold
        return (self.quantiles[row, place] - ROUNDING).masked_fill(level <= 0, -torch.inf)

    def set_thresholds(
        self, count: Int[Tensor, " way"], error: float
    ) -> tuple[Float[Tensor, " way"], Float[Tensor, " way"]]:
        """Smallest similarity, and smallest probability, of each class in a set (M42).

        The probability is the least that any of the numbers of shots asks for, since a class with
        many has less of it beside classes with few.

        Args:
            count: Supports of each class.
            error: Share of queries whose class may be missing from their set.
        """
        row, place = self._row(count), int(error * (LEVELS - 1) + ROUNDING)
        odds = self.set_odds[row, place].amin(-1, keepdim=True).expand_as(row)
        way = count.shape[-1]
        certain = CERTAIN if way >= FEWEST else min(CERTAIN, 1 - error)
        least = odds_to_probability(odds, way).clamp_max(certain)
        return self.set_similarity[row, place] - ROUNDING, least * (1 - ROUNDING)

    def _row(self, count: Int[Tensor, " way"]) -> Int[Tensor, " way"]:
        """Row of the largest calibrated number of shots up to each count."""
        place = torch.searchsorted(self.shots, count.to(self.shots), right=True) - 1
        return place.clamp_min(0)


def learn_conformity(seen: Sequence[HeldOut]) -> Conformity:
    """Take quantiles of what was seen, with equal weight for each class."""
    steps = torch.linspace(0, 1, LEVELS, dtype=torch.float64)
    shots = sorted({each.shot for each in seen})
    rows, n_classes = [], []
    for shot in shots:
        some = [each for each in seen if each.shot == shot]
        classes = torch.cat([each.classes for each in some])
        size = torch.bincount(classes)
        weight = 1 / size[classes].double()
        similarity = _Distribution(torch.cat([each.similarity for each in some]).double(), weight)
        odds = _Distribution(torch.cat([each.odds for each in some]), weight)
        left_out = torch.minimum(odds.ranks(), similarity.ranks() / SIMILAR)
        level = _Distribution(left_out, weight).quantiles(steps)  # where a share of steps is lost
        rows.append((
            similarity.quantiles(steps),
            similarity.quantiles(SIMILAR * level),
            odds.quantiles(level),
        ))  # fmt: skip
        n_classes.append(int((size > 0).sum()))
    quantiles, set_similarity, set_odds = (torch.stack(table) for table in zip(*rows, strict=True))
    return Conformity(
        torch.tensor(shots), quantiles, set_similarity, set_odds, torch.tensor(n_classes)
    )


class _Distribution:
    """Values with weights, sorted."""

    def __init__(self, values: Float[Tensor, " item"], weight: Float[Tensor, " item"]) -> None:
        self.order = values.argsort()
        self.values, mass = values[self.order], weight[self.order].cumsum(0)
        self.mass = mass / mass[-1]

    def ranks(self) -> Float[Tensor, " item"]:
        """Share of values up to each, in the order in which they came."""
        return torch.empty_like(self.mass).scatter_(0, self.order, self.mass)

    def quantiles(self, levels: Float[Tensor, " level"]) -> Float[Tensor, " level"]:
        """Smallest values up to which at least these shares lie."""
        return self.values[torch.searchsorted(self.mass, levels).clamp_max(len(self.values) - 1)]


def class_odds(probability: Float[Tensor, "*query"], way: int) -> Float[Tensor, "*query"]:
    """Odds of a class against the average other one, comparable across numbers of classes (M42).

    As a logarithm plus 1. The odds of true classes against the average rival depend little on the
    number of rivals if they are unfavourable, and shrink slowly with it if they are favourable,
    since the average is that of a few close rivals.
    """
    way = max(way, FEWEST)
    odds = torch.logit(probability.double()).clamp(*BOUNDS) + math.log(way - 1) + 1
    return odds.where(odds < 0, odds * math.log(way) ** WAY_POWER)


def odds_to_probability(odds: Float[Tensor, "*query"], way: int) -> Float[Tensor, "*query"]:
    """Undo `class_odds`."""
    way = max(way, FEWEST)
    odds = odds.where(odds < 0, odds / math.log(way) ** WAY_POWER)
    return torch.sigmoid(odds - math.log(way - 1) - 1)
