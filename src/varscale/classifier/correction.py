"""Correct class weights where examples, each left out, are misjudged (M40)."""

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from varscale.classifier.place import Place
from varscale.classifier.prior import Prior
from varscale.core.labels import class_counts
from varscale.functional import (
    fit_probe,
    leave_one_out,
    likeliest_factor,
    log_softmax,
    shot_scores,
)

FOLDS = 4
"""Parts into which the examples of a class are dealt, to tell how strong a correction may be."""
REACHES = (0.1, 0.4)
"""Standard deviations of a correction of the class weights, in units of the scale, beside none."""
INTERCEPT_REACH = 0.05
"""Standard deviation of what any of them adds to the score of a class, in the same units."""
ALLOWANCE = 0.06
"""By how much an example is explained better by a correction that was fitted to all examples."""
IMPOSSIBLE = -1e6
"""Score of a class that an example left out cannot be given to."""
LARGEST_PROBE = 1 << 26
"""Multiplications of a step of the probe, at most: beyond it some examples serve for all, and none
where that leaves fewer than two of a class."""


def probe_step(z: Float[Tensor, "*task item dim"], n_way: int) -> int:
    """Every how many-th example of a class serves to fit the correction (M40): all unless many."""
    return -(-z.shape[-2] * min(z.shape[-2:]) * n_way // LARGEST_PROBE)


def correct(
    prior: Prior,
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    alpha: Float[Tensor, "*task"],
) -> tuple[Float[Tensor, "*task way dim"], Float[Tensor, "*task way"]]:
    """Correct the scores where examples, left out, are misjudged (M40).

    No correction, a weak and a strong one are averaged. Each weighs as much as the likelihood of
    examples under one that was fitted without them: each part of `FOLDS`, or the first part where
    examples outnumber dimensions.

    Returns:
        What is added to the class weights, and to the scores of all queries.
    """
    part = deal_examples(place, z, labels, FOLDS)
    folds = FOLDS if z.shape[-2] <= z.shape[-1] else 1
    held = torch.stack([part == fold for fold in range(folds)] + [part < 0], -2)  # the last: none
    weights, intercept = correct_without(prior, place, z, labels, alpha, held)
    return weights[..., -1, :, :].to(z), intercept[..., -1, :].to(z)


def deal_examples(
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    parts: int,
) -> Integer[Tensor, "*task item"]:
    """Deal the examples of each class into parts, by turns: first what lies next to all classes.

    So the parts do not depend on the order in which examples are given.
    """
    middle = place.origin + place.means.mean(-2, keepdim=True)
    order = torch.linalg.vector_norm(z - middle, dim=-1).argsort(dim=-1, stable=True)
    order = order.gather(-1, labels.gather(-1, order).argsort(dim=-1, stable=True))  # by class
    count = class_counts(labels, place.count.shape[-1])
    first = (count.cumsum(-1) - count).gather(-1, labels.gather(-1, order))
    turn = (torch.arange(labels.shape[-1], device=labels.device) - first) % parts
    return torch.empty_like(turn).scatter_(-1, order, turn)


def choose_examples(
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    step: int,
) -> Integer[Tensor, "*task some"]:
    """Choose every `step`-th example of each class, at least one, so that all take part."""
    kept = deal_examples(place, z, labels, step) == 0
    most = int(kept.sum(-1).max())
    return (~kept).to(labels.dtype).argsort(dim=-1, stable=True)[..., :most]


def correct_without(
    prior: Prior,
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    alpha: Float[Tensor, "*task"],
    held: Bool[Tensor, "*task fit item"],
) -> tuple[Float[Tensor, "*task fit way dim"], Float[Tensor, "*task fit way"]]:
    """Fit corrections as `correct` does, each without the examples that it holds out.

    In float32, all at once. How much each size of a correction weighs is the same for all. That
    some classes have more examples than others is told in advance, so that it is not learned.
    """
    scores, factor = left_out_scores(prior, place, z, labels)
    frequency = class_counts(labels, place.count.shape[-1]).to(z).clamp_min(1).log()
    scores = alpha[..., None, None] * factor * scores + frequency.unsqueeze(-2)
    scores = scores.float()[..., None, None, :, :]
    factor, unit = (t.float()[..., None, None, :, :] for t in (factor, factor * place.unit(z)))
    given, out = labels[..., None, None, :], held.unsqueeze(-3).float()  # (*task, reach, fit, item)
    reach = torch.tensor(REACHES, device=z.device)[:, None, None, None]
    precision = (reach * alpha[..., None, None, None, None].float()) ** -2
    one = INTERCEPT_REACH / reach  # the weight of this column has its own standard deviation
    column = factor * one
    unit = torch.cat([unit.expand(*column.shape[:-1], unit.shape[-1]), column], -1)
    found = fit_probe(unit, given, scores, precision, 1 - out)  # (*task, reach, fit, way, dim + 1)
    moved, counts = scores + unit @ found.mT, (place.count.gather(-1, labels) > 1).float()
    gain = log_softmax(moved) - log_softmax(scores)
    gain = gain.gather(-1, given.expand(gain.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    evidence = ((gain + ALLOWANCE) * out * counts[..., None, None, :]).sum((-2, -1))
    odds = torch.nn.functional.pad(evidence, (1, 0))  # (*task, reach), after 0 for no correction
    share = torch.softmax(odds, -1)[..., 1:, None, None, None]
    weights, intercept = (share * found).split([z.shape[-1], 1], -1)
    return weights.sum(-4), (one * intercept).sum(-4).squeeze(-1)


def left_out_scores(
    prior: Prior,
    place: Place,
    z: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
) -> tuple[Float[Tensor, "*task item way"], Float[Tensor, "*task item 1"]]:
    """Scores of examples, each left out (M38), at a scale of 1 and the shots that remain (M49).

    Only classes with two or more examples take part. A class with one has none to leave out; if it
    took part as a rival, what is fitted would learn to avoid it.

    Returns:
        The scores, and the factor of each example as a query (M41), by which they are multiplied.
    """
    cosine = leave_one_out(z - place.origin, labels, place.means, place.count, place.weight)
    scores = score_left_out(prior, place, cosine, labels)
    factor = likeliest_factor(cosine, scores, prior.query_power, prior.top)
    own, single = labels.unsqueeze(-1), (place.count <= 1).unsqueeze(-2).expand_as(scores)
    hidden = (single | single.gather(-1, own)).scatter(-1, own, False)
    return scores.masked_fill(hidden, IMPOSSIBLE), factor


def score_left_out(
    prior: Prior,
    place: Place,
    cosine: Float[Tensor, "*task item way"],
    labels: Integer[Tensor, "*task item"],
    share: Float[Tensor, "*task"] | float = 0.0,
) -> Float[Tensor, "*task item way"]:
    """Turn similarities of examples left out into scores, by the shots that remain (M49).

    Queries have the `share` of the place. What is fitted (M39, M40) does without: with it, scales
    of noisy classes came out too large.
    """
    own = labels.unsqueeze(-1)
    rest = (place.count.gather(-1, labels) - 1).clamp_min(1).unsqueeze(-1)
    shots = place.count.unsqueeze(-2).expand_as(cosine).scatter(-1, own, rest)
    return shot_scores(cosine, shots, prior.shot_offset, place.scatter, share)
