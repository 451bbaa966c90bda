"""What the examples of a task add to a prior: its origin, its scale and its class weights."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.classifier.correction import choose_examples, correct, left_out_scores, probe_step
from varscale.classifier.place import Names, Place, place_task
from varscale.classifier.prior import Prior
from varscale.functional import (
    average_softmax,
    query_logits,
    scale_factor,
    shot_bias,
    shot_factor,
    transduce,
)
from varscale.functional.prototypes import EPS

FEW, FAR, UNLIKE = 5, 2.0, 0.6
"""A task of at least `FEW` classes is unlike the base classes if the squared distance of its mean
exceeds the noise `FAR` times, or if the distance of its classes changes the logarithm of the scale
by more than `UNLIKE`."""
NEGLIGIBLE = 0.02
"""A scale that is known as well as this is taken to be certain, since averaging takes longer."""
LARGEST_EVIDENCE = 1 << 21
"""Similarities of examples left out, at most: beyond it some examples tell the scale for all."""


@dataclass(frozen=True, eq=False)
class Task:
    """Classes as a classifier knows them, after a look at their examples.

    Attributes:
        prior: What base classes taught.
        place: Where the classes lie.
        weights: Class weights: a query's scores are its unit vector times these, plus the bias.
        bias: What is added to the score of each class (M40, M49).
        correction: What the examples added to the weights, beyond their means (M40).
        intercept: What they added to the bias.
        alpha: The scale at very many shots.
        factor: What the examples, left out one by one, made of it.
        std: How uncertain the scale remains, as a standard deviation of its logarithm.
    """

    prior: Prior
    place: Place
    weights: Float[Tensor, "*task way dim"]
    bias: Float[Tensor, "*task way"]
    correction: Float[Tensor, "*task way dim"]
    intercept: Float[Tensor, "*task way"]
    alpha: Float[Tensor, "*task"]
    factor: Float[Tensor, "*task"]
    std: Float[Tensor, "*task"]

    def embed(self, query: Float[Tensor, "*task query dim"]) -> Float[Tensor, "*task query dim"]:
        """Unit vectors of queries about the origin of the task."""
        return self.place.unit(self.prior.embed(query))

    def distance(self) -> str | None:
        """Say how the classes differ from the base classes, if they differ by much."""
        way, prior = self.place.count.shape[-1], self.prior
        if way < FEW or not prior.n_classes:
            return None
        spread = (self.place.means - self.place.means.mean(-2)).square().sum() / (way - 1)
        noise = 1 + way * prior.between / (prior.n_classes * float(spread) + EPS)
        if 1 / max(1 - float(self.place.weight), EPS) > FAR * noise:
            return "they lie elsewhere"
        if abs(math.log(float(self.place.spread))) > UNLIKE:
            return f"they lie {'further apart' if self.place.spread > 1 else 'closer together'}"
        return None

    def similarity(self, z: Float[Tensor, "*task query dim"]) -> Float[Tensor, "*task query way"]:
        """Cosines of embedded queries and class means."""
        return z @ self.place.references.to(z).mT

    def probabilities(
        self, z: Float[Tensor, "*task query dim"]
    ) -> Float[Tensor, "*task query way"]:
        """Probabilities of the classes of embedded queries, averaged over scales (M39, M41)."""
        known = (self.place.references.to(z), self.weights.to(z), self.bias.to(z))
        logits = query_logits(z, *known, power=self.prior.query_power, typical=self.prior.top)
        return average_softmax(logits, self.std)

    def transduce(
        self, query: Float[Tensor, "*task query dim"]
    ) -> Float[Tensor, "*task query way"]:
        """Probabilities of queries that serve as examples of each other (M44)."""
        z = self.prior.embed(query.double()) - self.place.origin
        prior, place = self.prior, self.place
        known = (place.means, place.count, self.correction, self.intercept, self.alpha, self.std)
        laws = (prior.shot_offset, prior.query_power, prior.top)
        return transduce(z, *known, place.scatter, place.share, *laws)


def tells_scale(count: Float[Tensor, "*task way"]) -> bool:
    """Whether examples can be left out: of two classes or more, which then compete (M49)."""
    return bool(((count > 1).sum(-1) > 1).any())


@torch.no_grad()
def fit_task(
    prior: Prior,
    items: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    n_way: int,
    names: Float[Tensor, "way dim"] | None = None,
) -> Task:
    """Update a prior by the examples of a task, in float64.

    `names` are embeddings of the names of its classes, rows of NaN where there is none (M43).
    """
    z = prior.embed(items.double())
    named = None if names is None else Names.place(prior, names, z, labels)
    place = place_task(prior, z, labels, n_way, named)
    alpha = prior.mean * place.spread
    correction, intercept = torch.zeros_like(place.means), torch.zeros_like(place.count)
    factor = torch.ones_like(alpha)
    std = prior.scale_spread(place.shift)
    if prior.adapts and tells_scale(place.count):
        step = -(-labels.shape[-1] * n_way // LARGEST_EVIDENCE)
        some, given = z[..., ::step, :], labels[..., ::step]
        scores, own = left_out_scores(prior, place, some, given)
        counts = (place.count.gather(-1, given) > 1).to(z)
        factor, std = scale_factor(alpha[..., None, None] * own * scores, given, counts, std)
        alpha = factor * alpha
        step = probe_step(z, n_way)
        if labels.shape[-1] >= 2 * step * n_way or step == 1:
            if step > 1:
                some = choose_examples(place, z, labels, step)
                z, labels = z.take_along_dim(some.unsqueeze(-1), -2), labels.gather(-1, some)
            correction, intercept = correct(prior, place, z, labels, alpha)
    scale = alpha.unsqueeze(-1) * shot_factor(place.count, prior.shot_offset)
    centred = place.references - place.references.mean(-2, keepdim=True)
    weights = scale.unsqueeze(-1) * centred + correction
    law = (prior.shot_offset, place.scatter.unsqueeze(-1), place.share.unsqueeze(-1))
    bias = intercept - alpha.unsqueeze(-1) * shot_bias(place.count, *law)
    std = std.where(std > NEGLIGIBLE, 0.0)
    return Task(prior, place, weights, bias, correction, intercept, alpha, factor, std)
