"""Which classes a query may belong to, if any: conformal thresholds from held-out classes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LEVELS = 1001
"""Number of quantiles stored for each distribution of similarities."""
ROUNDING = 1e-6
"""Allowance for rounding of a similarity, or of a probability relative to its size, in float32;
near-duplicates differ by less."""


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
        n_classes: Held-out classes that had enough items, for each number of shots.
    """

    shots: Int[Tensor, " shot"]
    quantiles: Float[Tensor, "shot level"]
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

    def _row(self, count: Int[Tensor, " way"]) -> Int[Tensor, " way"]:
        """Row of the largest calibrated number of shots up to each count."""
        place = torch.searchsorted(self.shots, count.to(self.shots), right=True) - 1
        return place.clamp_min(0)


def class_quantiles(seen: Sequence[tuple[int, Tensor, Tensor]]) -> Conformity:
    """Quantiles of what was seen, with equal weight for each class.

    That is: number of shots, similarities of items to their own prototype, and their classes.
    """
    shots = sorted({shot for shot, _, _ in seen})
    rows, n_classes = [], []
    for shot in shots:
        values = torch.cat([own for n, own, _ in seen if n == shot]).double()
        classes = torch.cat([c for n, _, c in seen if n == shot])
        size = torch.bincount(classes)
        order = values.argsort()
        mass = (1 / size[classes[order]]).double().cumsum(0)
        at = torch.linspace(0, 1, LEVELS, dtype=torch.float64) * mass[-1]
        place = torch.searchsorted(mass, at).clamp_max(len(values) - 1)
        rows.append(values[order][place])
        n_classes.append(int((size > 0).sum()))
    return Conformity(torch.tensor(shots), torch.stack(rows), torch.tensor(n_classes))


def prediction_set(
    accepted: Bool[Tensor, "*query way"], probability: Float[Tensor, "*query way"], error: float
) -> Bool[Tensor, "*query way"]:
    """The accepted classes of each query, without the least likely ones (M42).

    As many are left out as have at most `error` of the probability, together with the classes that
    are not accepted. Equally likely classes are left out together or not at all; the likeliest one
    that is accepted stays.
    """
    p = (probability.double() * accepted).contiguous()
    refused = (probability.double() * ~accepted).sum(-1, keepdim=True)
    ordered, as_likely = p.sort(-1).values, p * (1 + ROUNDING)
    last = torch.searchsorted(ordered, as_likely, right=True) - 1
    unlikely = refused + ordered.cumsum(-1).gather(-1, last) <= error
    return accepted & (~unlikely | (as_likely >= ordered[..., -1:]))
