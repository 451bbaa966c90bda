"""What the examples of a task add to a prior: its origin, its scale and its class weights."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.classifier.prior import Prior
from varscale.core.labels import class_counts
from varscale.functional import (
    class_spread,
    fit_probe,
    leave_one_out,
    log_softmax,
    normalize,
    prototypes,
    query_logits,
    scale_factor,
    shot_factor,
    task_origin,
    temper,
)

REACH = 0.3
"""Standard deviation of a correction of the class weights, in units of the scale (M40)."""
FAR, UNLIKE = 0.05, 0.3
"""Beyond these a task is unlike the base classes: squared distance of the means in spreads of the
classes; logarithm of the factor that M39 gives to the scale."""
LARGEST_EVIDENCE = 1 << 21
"""Similarities of examples left out, at most: beyond it some examples tell the scale for all."""
LARGEST_PROBE = 1 << 29
"""Multiplications of a step of the probe, at most: beyond it there is no correction."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where the classes of a task lie.

    Attributes:
        origin: Origin of the task, among whitened embeddings (M37).
        weight: Weight of the task's own mean in it.
        means: Class means, from that origin.
        references: The same as unit vectors.
        count: Examples of each class.
        spread: Factor of the scale for classes so far apart (M39).
    """

    origin: Float[Tensor, "*task 1 dim"]
    weight: Float[Tensor, "*task 1 1"]
    means: Float[Tensor, "*task way dim"]
    references: Float[Tensor, "*task way dim"]
    count: Float[Tensor, "*task way"]
    spread: Float[Tensor, "*task"]

    def unit(self, z: Float[Tensor, "*task query dim"]) -> Float[Tensor, "*task query dim"]:
        """Unit vectors of whitened embeddings about the origin."""
        return normalize(z - self.origin.to(z))


def place_task(
    prior: Prior, z: Float[Tensor, "*task item dim"], labels: Integer[Tensor, "*task item"],
    n_way: int,
) -> Place:  # fmt: skip
    """Place the classes of whitened examples."""
    means, count = prototypes(z, labels, n_way), class_counts(labels, n_way).to(z)
    origin, weight = task_origin(means, z.new_zeros(z.shape[-1]))
    if not prior.adapts:
        origin, weight = torch.zeros_like(origin), torch.zeros_like(weight)
    spread = prior.spread_factor(class_spread(means, count, prior.within))
    means = means - origin
    return Place(origin, weight, means, normalize(means), count, spread)


@dataclass(frozen=True, eq=False)
class Task:
    """Classes as a classifier knows them, after a look at their examples.

    Attributes:
        prior: What base classes taught.
        place: Where the classes lie.
        weights: Class weights: a query's scores are its unit vector times these.
        alpha: The scale at very many shots.
        factor: What the examples, left out one by one, made of it.
    """

    prior: Prior
    place: Place
    weights: Float[Tensor, "*task way dim"]
    alpha: Float[Tensor, "*task"]
    factor: Float[Tensor, "*task"]

    def embed(self, query: Float[Tensor, "*task query dim"]) -> Float[Tensor, "*task query dim"]:
        """Unit vectors of queries about the origin of the task."""
        return self.place.unit(self.prior.embed(query))

    def distance(self) -> str | None:
        """Say how the classes differ from the base classes, if they differ by much."""
        way, weight = self.place.count.shape[-1], float(self.place.weight)
        away = (1 / max(1 - weight, 1e-9) - 1) / way  # of the means, squared, in base spreads
        if self.prior.n_classes and away > FAR:
            return f"their mean lies {away**0.5:.1f} times their own spread from that of the base"
        if self.prior.n_classes and abs(math.log(float(self.place.spread))) > UNLIKE:
            return (
                f"the distances between them ask for {float(self.place.spread):.2g} times the scale"
            )
        return None

    def similarity(self, z: Float[Tensor, "*task query dim"]) -> Float[Tensor, "*task query way"]:
        """Cosines of embedded queries and class means."""
        return z @ self.place.references.to(z).mT

    def log_probabilities(
        self, z: Float[Tensor, "*task query dim"]
    ) -> Float[Tensor, "*task query way"]:
        """Log-probabilities of the classes of embedded queries (M41)."""
        references, weights = self.place.references.to(z), self.weights.to(z)
        power, typical = self.prior.query_power, self.prior.top
        return log_softmax(query_logits(z, references, weights, power=power, typical=typical))


@torch.no_grad()
def fit_task(
    prior: Prior,
    items: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    n_way: int,
) -> Task:
    """Update a prior by the examples of a task, in float64."""
    z = prior.embed(items.double())
    place = place_task(prior, z, labels, n_way)
    alpha = prior.mean * place.spread
    factor, correction = torch.ones_like(alpha), torch.zeros_like(place.means)
    if prior.adapts and bool((place.count > 1).any()):
        step = -(-labels.shape[-1] * n_way // LARGEST_EVIDENCE)
        some, given = z[..., ::step, :], labels[..., ::step]
        scores = alpha[..., None, None] * left_out_scores(prior, place, some, given)
        counts = (place.count.gather(-1, given) > 1).to(z)
        factor = scale_factor(scores, given, counts, prior.spread)
        alpha = factor * alpha
        if z.shape[-2] * min(z.shape[-2:]) * n_way <= LARGEST_PROBE:
            scores = alpha[..., None, None] * left_out_scores(prior, place, z, labels)
            precision = (REACH * alpha[..., None, None]) ** -2
            correction = fit_probe(place.unit(z), labels, scores, precision)
    share = shot_factor(place.count, prior.shot_offset).unsqueeze(-1)
    centred = place.references - place.references.mean(-2, keepdim=True)
    return Task(prior, place, alpha[..., None, None] * share * centred + correction, alpha, factor)


def left_out_scores(
    prior: Prior,
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
) -> Float[Tensor, "*task item way"]:
    """Scores of examples, each left out (M38), at a scale of 1 and the shots that remain (M24)."""
    cosine = leave_one_out(z - place.origin, labels, place.means, place.count, place.weight)
    own = labels.unsqueeze(-1)
    rest = (place.count.gather(-1, labels) - 1).clamp_min(1).unsqueeze(-1)
    shots = place.count.unsqueeze(-2).expand_as(cosine).scatter(-1, own, rest)
    return temper(cosine, shot_factor(shots, prior.shot_offset))
