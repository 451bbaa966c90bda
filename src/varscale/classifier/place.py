"""Where the classes of a task lie: by their examples, and by their names."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.classifier.prior import Prior
from varscale.core.labels import class_counts
from varscale.functional import class_means, class_spread, normalize, task_origin
from varscale.functional.prototypes import EPS

NAME_COUNT = 1.0
"""Examples that the name of a class is worth (M43)."""


@dataclass(frozen=True, eq=False)
class Names:
    """Names of classes as examples of them (M43).

    Attributes:
        z: Whitened names, where examples would lie.
        count: Examples that each is worth; 0 for a class without a name.
    """

    z: Float[Tensor, "*task way dim"]
    count: Float[Tensor, "*task way"]

    @classmethod
    def place(
        cls,
        prior: Prior,
        names: Float[Tensor, "way dim"],
        z: Float[Tensor, "item dim"],
        labels: Integer[Tensor, " item"],
    ) -> "Names":
        """Move names to where examples lie, as base classes or the other classes tell.

        Args:
            prior: What base classes taught.
            names: Embeddings of the names; rows of NaN for classes without.
            z: Whitened examples.
            labels: Their classes.
        """
        named = ~names.isnan().any(-1)
        whitened = prior.embed(names.double().nan_to_num())
        gap = prior.name_gap
        if gap is None:
            own = torch.nn.functional.one_hot(labels, len(names)).to(z)
            both = named & (own.sum(0) > 0)
            means = (own.mT @ z)[both] / own.sum(0)[both].unsqueeze(-1)
            gap = (whitened[both] - means).mean(0) if both.any() else z.new_zeros(z.shape[-1])
        return cls(whitened - gap, NAME_COUNT * named.to(z))

    def join(
        self, z: Float[Tensor, "*task item dim"], labels: Integer[Tensor, "*task item"], n_way: int
    ) -> tuple[Float[Tensor, "*task way dim"], Float[Tensor, "*task way"]]:
        """Class means and counts of examples and names together."""
        own = torch.nn.functional.one_hot(labels, n_way).to(z)
        count = own.sum(-2) + self.count
        total = own.mT @ z + self.count.unsqueeze(-1) * self.z
        return total / count.unsqueeze(-1), count


@dataclass(frozen=True, eq=False)
class Place:
    """Where the classes of a task lie.

    Attributes:
        origin: Origin of the task, among whitened embeddings (M37).
        weight: Weight of the task's own mean in it.
        means: Class means, from that origin.
        references: The same as unit vectors.
        count: Examples of each class.
        spread: Factor of the scale for classes that differ and scatter so much (M39).
        scatter: Variance within classes, in units of that between them (M49); infinite if nothing
            tells it, or if the classes do not differ.
    """

    origin: Float[Tensor, "*task 1 dim"]
    weight: Float[Tensor, "*task 1 1"]
    means: Float[Tensor, "*task way dim"]
    references: Float[Tensor, "*task way dim"]
    count: Float[Tensor, "*task way"]
    spread: Float[Tensor, "*task"]
    scatter: Float[Tensor, "*task"]

    @property
    def share(self) -> Float[Tensor, "*task"]:
        """Share of each class mean in the origin (M49)."""
        return self.weight[..., 0, 0] / self.count.shape[-1]

    @property
    def shift(self) -> Float[Tensor, "*task"]:
        """Squared distance from the base classes, in units of the variance of the means (M39)."""
        weight = self.weight[..., 0, 0]
        return (weight / (self.count.shape[-1] * (1 - weight).clamp_min(EPS))).clamp_max(1)

    def unit(self, z: Float[Tensor, "*task query dim"]) -> Float[Tensor, "*task query dim"]:
        """Unit vectors of whitened embeddings about the origin."""
        return normalize(z - self.origin.to(z))


def place_task(
    prior: Prior,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    n_way: int,
    names: Names | None = None,
) -> Place:
    """Place the classes of whitened examples, and of names if there are any."""
    if names is None:
        means, count = class_means(z, labels, n_way), class_counts(labels, n_way).to(z)
    else:
        means, count = names.join(z, labels, n_way)
    origin, weight = task_origin(means, z.new_zeros(z.shape[-1]))
    if not prior.adapts:
        origin, weight = torch.zeros_like(origin), torch.zeros_like(weight)
    centre = means.mean(-2, keepdim=True)  # about it, sums of squares lose no digits
    square = torch.linalg.vector_norm(z - centre, dim=(-2, -1)).square()
    if names is not None:
        square = square + (names.count * (names.z - centre).square().sum(-1)).sum(-1)
    square = (square - (count * (means - centre).square().sum(-1)).sum(-1)).clamp_min(0)
    between, within = prior.variances(class_spread(means), square, count)
    spread = prior.spread_factor(between, within)
    differ = class_spread(means) > EPS**2 * means.square().sum(-1).mean(-1)
    known = differ & within.isfinite() & (between > 0)
    scatter = torch.where(known, within / between, torch.inf)
    means = means - origin
    return Place(origin, weight, means, normalize(means), count, spread, scatter)
