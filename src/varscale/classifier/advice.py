"""What to label next, what more examples would bring, and which examples speak for an answer."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.classifier.prior import Prior
from varscale.classifier.task import Task, fit_task
from varscale.functional import choose_covering, extrapolate_error

POOL = 4096
"""Items among which to choose at once, at most: beyond it every second, third, ..."""
ROUND = 4
"""Part of these items, one in `ROUND`, after which the others have their turn."""
SHARPNESS, UNCERTAINTY = 2.0, 0.5
"""Powers of similarity and of uncertainty in the choice (M46)."""
TURNS = 3
"""How often examples are held out to measure an error, each time others."""
LARGEST_HELD = 1 << 23
"""Probabilities of held-out examples, at most: beyond it some of them serve for all."""
WIDTH = 1.645
"""Standard deviations to either side of a 90 % interval."""
CHUNK = 1 << 22
"""Similarities held in memory at once."""


class Expected(NamedTuple):
    """An accuracy that is expected, and its 90 % interval."""

    mean: float
    low: float
    high: float


@torch.no_grad()
def next_to_label(
    task: Task, pool: Float[Tensor, "item dim"], examples: Float[Tensor, "example dim"], n: int
) -> Int[Tensor, " n"]:
    """Choose items that are typical of what the classifier does not know (M46)."""
    step, n = -(-len(pool) // POOL), min(n, len(pool))
    waiting = deque(torch.arange(first, len(pool), step) for first in range(step))
    known, chosen = task.embed(examples.double()).float(), []
    while n:
        rows = waiting.popleft()
        z = task.embed(pool[rows].double())
        doubt = 1 - task.probabilities(z).amax(-1)
        z = z.float()
        covered = torch.cat([_sharpen(part @ known.mT).amax(-1) for part in _split(z, len(known))])
        weight = doubt.clamp_min(0).float() ** UNCERTAINTY
        most = max(1, POOL // ROUND) if waiting else len(rows)
        best = choose_covering(_sharpen(z @ z.mT), covered, weight, min(n, most, len(rows)))
        chosen.append(rows[best])
        known, n = torch.cat([known, z[best]]), n - len(best)
        left = torch.ones(len(rows), dtype=torch.bool).index_fill(0, best, False)
        if left.any():
            waiting.append(rows[left])
    return torch.cat(chosen)


@torch.no_grad()
def expected_accuracies(
    prior: Prior,
    items: Float[Tensor, "item dim"],
    labels: Int[Tensor, " item"],
    n_way: int,
    names: Float[Tensor, "way dim"] | None,
    more: Sequence[float],
) -> list[Expected]:
    """Tell the accuracy with more examples of each class from that with fewer (M47).

    Half of each class is held out and classified by the rest, then a quarter, each several times.
    The error is the mean of what was counted and of what the probabilities expected.
    """
    if n_way < 2:
        return [Expected(1.0, 1.0, 1.0)] * len(more)
    count = torch.bincount(labels, minlength=n_way)
    if int(count.max()) < 2:
        raise ValueError(
            "Examples are held out to see how the others classify them, but every class has one "
            "alone. Add examples."
        )
    errors, shots = [], []
    spare = (count - 1).clamp_min(0)  # a class known by its name alone has none
    held = [(count - count // 2).minimum(spare), (count // 4).clamp_min(1).minimum(spare)]
    for out in held if int(count.max()) > 2 else held[:1]:
        found = [_hold_out(prior, items, labels, out, names, turn) for turn in range(TURNS)]
        errors.append(sum(error for error, _ in found) / TURNS)
        shots.append(found[0][1])
    seen = torch.tensor(errors), torch.stack(shots), int(count[count > 1].sum())
    now = shots[0] + held[0]
    return [_accuracy(extrapolate_error(*seen, now + further, width=WIDTH)) for further in more]


def _accuracy(error: tuple[float, float, float]) -> Expected:
    middle, low, high = error
    return Expected(1 - middle, 1 - high, 1 - low)


def _hold_out(
    prior: Prior,
    items: Float[Tensor, "item dim"],
    labels: Int[Tensor, " item"],
    out: Int[Tensor, " way"],
    names: Float[Tensor, "way dim"] | None,
    turn: int,
) -> tuple[float, Float[Tensor, " way"]]:
    """Hold out some examples of each class: the error on them, and the shots that remain."""
    n_way, place, size = len(out), _places(labels), torch.bincount(labels, minlength=len(out))
    start = turn * -(-size // TURNS)
    held = (place - start[labels]) % size[labels] < out[labels]
    fitted = fit_task(prior, items[~held], labels[~held], n_way, names)
    step = -(-int(held.sum()) * n_way // LARGEST_HELD)
    query, truth = items[held][::step], labels[held][::step]
    wrong = 0.0
    for part, own in zip(_split(query, n_way), _split(truth, n_way), strict=True):
        top, guess = fitted.probabilities(fitted.embed(part.double())).max(-1)
        wrong += float((1 - top + (guess != own).double()).sum() / 2)
    return wrong / len(query), fitted.place.count


@torch.no_grad()
def nearest(
    task: Task,
    query: Float[Tensor, "query dim"],
    examples: Float[Tensor, "example dim"],
    labels: Int[Tensor, " example"],
    k: int,
) -> tuple[Int[Tensor, "query k"], Float[Tensor, "query k"]]:
    """Find the examples of the likeliest class that are most similar to each query.

    Returns:
        Their places and cosines; -1 and 0 where the class has fewer than `k` examples.
    """
    known, places, cosines = task.embed(examples.double()), [], []
    z = task.embed(query.double())
    for part in _split(z, len(known) + len(task.weights)):
        answer = task.probabilities(part).argmax(-1, keepdim=True)
        cosine = (part @ known.mT).masked_fill(labels != answer, -2.0)
        best, index = cosine.topk(min(k, len(known)))
        short = (0, k - best.shape[-1])
        best = torch.nn.functional.pad(best, short, value=-2.0)
        index = torch.nn.functional.pad(index, short, value=-1)
        places.append(index.masked_fill(best < -1.5, -1))
        cosines.append(best.masked_fill(best < -1.5, 0.0).clamp(-1, 1))
    return torch.cat(places), torch.cat(cosines)


def _sharpen(cosine: Tensor) -> Tensor:
    return cosine.clamp_min(0) ** SHARPNESS


def _split(z: Tensor, width: int) -> tuple[Tensor, ...]:
    return torch.split(z, max(1, CHUNK // max(width, 1)))


def _places(labels: Int[Tensor, " item"]) -> Int[Tensor, " item"]:
    """Place of each example within its class."""
    order = torch.argsort(labels, stable=True)
    count = torch.bincount(labels)
    start = torch.repeat_interleave(count.cumsum(0) - count, count)
    place = torch.empty_like(labels)
    place[order] = torch.arange(len(labels)) - start
    return place
