"""What the examples of a task add to a prior: its origin, its scale and its class weights."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from varscale.classifier.prior import Prior
from varscale.core.labels import class_counts
from varscale.functional import (
    class_means,
    class_spread,
    fit_probe,
    leave_one_out,
    log_softmax,
    normalize,
    query_logits,
    scale_factor,
    shot_factor,
    task_origin,
    temper,
    transduce,
)
from varscale.functional.prototypes import EPS

NAME_COUNT = 1.0
"""Examples that the name of a class is worth (M43)."""
FOLDS = 4
"""Parts into which the examples of a class are dealt, to tell how strong a correction may be."""
REACHES = (0.1, 0.3)
"""Standard deviations of a correction of the class weights, in units of the scale, beside none."""
ALLOWANCE = 0.08
"""By how much an example is explained better by a correction that was fitted to all examples."""
FEW, FAR, UNLIKE = 5, 2.0, 0.6
"""A task of at least `FEW` classes is unlike the base classes if the squared distance of its mean
exceeds the noise `FAR` times, or if the distance of its classes changes the logarithm of the scale
by more than `UNLIKE`."""
LARGEST_EVIDENCE = 1 << 21
"""Similarities of examples left out, at most: beyond it some examples tell the scale for all."""
LARGEST_PROBE = 1 << 26
"""Multiplications of a step of the probe, at most: beyond it some examples serve for all, and none
where that leaves fewer than two of a class."""


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
        correction: What the examples added to them, beyond their means.
        alpha: The scale at very many shots.
        factor: What the examples, left out one by one, made of it.
    """

    prior: Prior
    place: Place
    weights: Float[Tensor, "*task way dim"]
    correction: Float[Tensor, "*task way dim"]
    alpha: Float[Tensor, "*task"]
    factor: Float[Tensor, "*task"]

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

    def log_probabilities(
        self, z: Float[Tensor, "*task query dim"]
    ) -> Float[Tensor, "*task query way"]:
        """Log-probabilities of the classes of embedded queries (M41)."""
        references, weights = self.place.references.to(z), self.weights.to(z)
        power, typical = self.prior.query_power, self.prior.top
        return log_softmax(query_logits(z, references, weights, power=power, typical=typical))

    def transduce(
        self, query: Float[Tensor, "*task query dim"]
    ) -> Float[Tensor, "*task query way"]:
        """Log-probabilities of queries that serve as examples of each other (M44)."""
        z = self.prior.embed(query.double()) - self.place.origin
        prior, known = self.prior, (self.place.means, self.place.count, self.correction, self.alpha)
        laws = (prior.shot_offset, prior.query_power, prior.top)
        return transduce(z, *known, *laws)


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
    factor, correction = torch.ones_like(alpha), torch.zeros_like(place.means)
    if prior.adapts and bool((place.count > 1).any()):
        step = -(-labels.shape[-1] * n_way // LARGEST_EVIDENCE)
        some, given = z[..., ::step, :], labels[..., ::step]
        scores = alpha[..., None, None] * left_out_scores(prior, place, some, given)
        counts = (place.count.gather(-1, given) > 1).to(z)
        factor = scale_factor(scores, given, counts, prior.spread)
        alpha = factor * alpha
        step = probe_step(z, n_way)
        if labels.shape[-1] >= 2 * step * n_way or step == 1:
            correction = correct(prior, place, z[..., ::step, :], labels[..., ::step], alpha)
    share = shot_factor(place.count, prior.shot_offset).unsqueeze(-1)
    centred = place.references - place.references.mean(-2, keepdim=True)
    weights = alpha[..., None, None] * share * centred + correction
    return Task(prior, place, weights, correction, alpha, factor)


def probe_step(z: Float[Tensor, "*task item dim"], n_way: int) -> int:
    """Every how many-th example serves to fit the correction (M40): all of them unless many."""
    return -(-z.shape[-2] * min(z.shape[-2:]) * n_way // LARGEST_PROBE)


def correct(
    prior: Prior,
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    alpha: Float[Tensor, "*task"],
) -> Float[Tensor, "*task way dim"]:
    """Correct the class weights where examples, left out, are misjudged (M40).

    No correction, a small and a large one are averaged. Each weighs as much as the likelihood of
    examples under one that was fitted without them: each part of `FOLDS`, or the first part where
    examples outnumber dimensions.
    """
    part = deal_examples(labels, place.count.shape[-1], FOLDS)
    folds = FOLDS if z.shape[-2] <= z.shape[-1] else 1
    held = torch.stack([part == fold for fold in range(folds)] + [part < 0], -2)  # the last: none
    return correct_without(prior, place, z, labels, alpha, held)[..., -1, :, :].to(z)


def deal_examples(
    labels: Integer[Tensor, "*task item"], n_way: int, parts: int
) -> Integer[Tensor, "*task item"]:
    """Deal the examples of each class into parts, by turns."""
    own = torch.nn.functional.one_hot(labels, n_way)
    return ((own.cumsum(-2) * own).sum(-1) - 1) % parts


def correct_without(
    prior: Prior,
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    alpha: Float[Tensor, "*task"],
    held: Bool[Tensor, "*task fit item"],
) -> Float[Tensor, "*task fit way dim"]:
    """Fit corrections as `correct` does, each without the examples that it holds out.

    In float32, all at once. How much each size of a correction weighs is the same for all.
    """
    scores = (alpha[..., None, None] * left_out_scores(prior, place, z, labels)).float()
    scores, unit = scores[..., None, None, :, :], place.unit(z).float()[..., None, None, :, :]
    given, out = labels[..., None, None, :], held.unsqueeze(-3).float()  # (*task, reach, fit, item)
    reach = torch.tensor(REACHES, device=z.device)[:, None, None, None]
    precision = (reach * alpha[..., None, None, None, None].float()) ** -2
    found = fit_probe(unit, given, scores, precision, 1 - out)  # (*task, reach, fit, way, dim)
    moved, counts = scores + unit @ found.mT, (place.count.gather(-1, labels) > 1).float()
    gain = log_softmax(moved) - log_softmax(scores)
    gain = gain.gather(-1, given.expand(gain.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    evidence = ((gain + ALLOWANCE) * out * counts[..., None, None, :]).sum((-2, -1))
    odds = torch.nn.functional.pad(evidence, (1, 0))  # (*task, reach), after 0 for no correction
    share = torch.softmax(odds, -1)[..., 1:]
    return torch.einsum("...r,...rfwd->...fwd", share, found)


def left_out_scores(
    prior: Prior,
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
) -> Float[Tensor, "*task item way"]:
    """Scores of examples, each left out (M38), at a scale of 1 and the shots that remain (M24)."""
    cosine = leave_one_out(z - place.origin, labels, place.means, place.count, place.weight)
    return temper_left_out(prior, place, cosine, labels)


def temper_left_out(
    prior: Prior,
    place: Place,
    cosine: Float[Tensor, "*task item way"],
    labels: Integer[Tensor, "*task item"],
) -> Float[Tensor, "*task item way"]:
    """Apply the shots that remain (M24) to similarities of examples left out."""
    own = labels.unsqueeze(-1)
    rest = (place.count.gather(-1, labels) - 1).clamp_min(1).unsqueeze(-1)
    shots = place.count.unsqueeze(-2).expand_as(cosine).scatter(-1, own, rest)
    return temper(cosine, shot_factor(shots, prior.shot_offset))
