"""How each example looks to a classifier that was fitted without it (M45)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from varscale.classifier.correction import (
    FOLDS,
    choose_examples,
    correct_without,
    deal_examples,
    probe_step,
    score_left_out,
)
from varscale.classifier.task import Task
from varscale.functional import leave_one_out, likeliest_factor, log_softmax

CHUNK = 1 << 22
"""Probabilities held in memory at once."""
RIVALS = 5
"""Other classes whose probability counts as confusion, for each example."""
MANY = 2
"""Parts into which examples are dealt for the correction, where they outnumber dimensions."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What the classifier says of each example, itself left out.

    Attributes:
        judged: Whether it could be left out: an only example of its class cannot.
        quality: Probability of its own label; 1 if it was not judged.
        guess: Likeliest class, as a place among the classes; the own one if it was not judged.
        confidence: Probability of that class.
        pairs: Pairs of classes that are confused, as places among the classes, worst first.
        rate: Mean probability that an example of one class of the pair is given to the other.
    """

    judged: Bool[np.ndarray, " item"]
    quality: Float[np.ndarray, " item"]
    guess: Int[np.ndarray, " item"]
    confidence: Float[np.ndarray, " item"]
    pairs: Int[np.ndarray, "pair 2"]
    rate: Float[np.ndarray, " pair"]


def can_leave_out(task: Task, labels: Tensor) -> Tensor:
    """Whether each example may be left out: its class has another one, or a name (M43)."""
    return task.place.count.gather(-1, labels) > 1


@torch.no_grad()
def left_out_probabilities(
    task: Task, items: Float[Tensor, "item dim"], labels: Int[Tensor, " item"]
) -> Iterator[tuple[slice, Float[Tensor, "part way"]]]:
    """Yield log-probabilities of the classes of each example, itself left out (M45), in parts.

    Origin weight, scale and reach of the correction stay as all examples made them. An only example
    of its class stays in. Raises ValueError if that holds for all of them.
    """
    if not bool(can_leave_out(task, labels).any()):
        raise ValueError(
            "Examples are judged by the others of their class, but every class has one alone. Add "
            "examples."
        )
    prior, place, way = task.prior, task.place, task.place.count.shape[-1]
    z = prior.embed(items.double())
    *corrections, home = _corrections(task, z, labels)
    size = max(1, CHUNK // way)
    for start in range(0, len(z), size):
        part = slice(start, start + size)
        given, some = labels[part], z[part] - place.origin
        cosine = leave_one_out(some, given, place.means, place.count, place.weight)
        scores = task.alpha * score_left_out(prior, place, cosine, given, place.share)
        for number, (correction, intercept) in enumerate(zip(*corrections, strict=True)):
            own = home[part] == number
            scores[own] += place.unit(z[part][own]) @ correction.mT + intercept
        factor = likeliest_factor(cosine, scores, prior.query_power, prior.top)
        yield part, log_softmax(factor * scores)


def judge(task: Task, items: Float[Tensor, "item dim"], labels: Int[Tensor, " item"]) -> Judged:
    """Judge every example by the others, in memory that does not grow with the classes."""
    n, way = len(items), task.place.count.shape[-1]
    quality, guess, confidence = np.ones(n), labels.numpy().copy(), np.ones(n)
    judged = can_leave_out(task, labels).numpy()
    codes, masses = [], []
    for part, log_p in left_out_probabilities(task, items, labels):
        p, own = log_p.exp(), labels[part].unsqueeze(-1)
        top, best = p.max(-1)
        kept = judged[part]
        quality[part] = np.where(kept, p.gather(-1, own).squeeze(-1).numpy(), 1)
        guess[part] = np.where(kept, best.numpy(), guess[part])
        confidence[part] = np.where(kept, top.numpy(), 1)
        mass, other = p.scatter(-1, own, -1.0).topk(min(RIVALS, way - 1))
        first, second = torch.minimum(own, other), torch.maximum(own, other)
        codes.append((first * way + second)[kept].flatten().numpy())
        masses.append(mass[kept].flatten().numpy())
    code, place = np.unique(np.concatenate(codes), return_inverse=True)
    pairs = np.stack([code // way, code % way], -1)
    number = np.bincount(labels.numpy()[judged], minlength=way)[pairs].sum(-1)
    rate = np.bincount(place, np.concatenate(masses), len(code)) / np.maximum(number, 1)
    order = np.argsort(-rate, kind="stable")
    return Judged(judged, quality, guess, confidence, pairs[order], rate[order])


def _corrections(
    task: Task, z: Float[Tensor, "item dim"], labels: Int[Tensor, " item"]
) -> tuple[Float[Tensor, "fit way dim"], Float[Tensor, "fit way"], Int[Tensor, " item"]]:
    """Corrections of weights and bias (M40), and which was fitted without each example."""
    weights, intercept, home = task.correction[None], task.intercept[None], torch.zeros_like(labels)
    if not bool(weights.any()):
        return weights[:0], intercept[:0], home
    step = probe_step(z, intercept.shape[-1])
    chosen = choose_examples(task.place, z, labels, step)
    some, given = z[chosen], labels[chosen]
    parts = FOLDS if len(some) <= z.shape[-1] else MANY
    part = deal_examples(task.place, some, given, parts)
    held = torch.stack([part == fold for fold in range(parts)])
    own, lift = correct_without(task.prior, task.place, some, given, task.alpha, held)
    home += parts  # of those that did not serve, the correction by the others
    home[chosen] = part
    return torch.cat([own.to(z), weights]), torch.cat([lift.to(z), intercept]), home
