"""Learn a prior from base classes: a metric, its scale, and thresholds for rejection.

The metric (origin, whitening) is learned on all base classes. Its scale is not: on classes that a
metric was learned on, distances look better than they are. So the classes are dealt into folds. The
scale, its laws and the conformal thresholds are learned on tasks of each fold, under a metric
learned on the other folds.
"""

from dataclasses import asdict, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.classifier.prior import Prior, broad_prior, unit_of
from varscale.classifier.similarities import draw_similarities, join
from varscale.core.labels import number_classes
from varscale.core.random import uniform
from varscale.evaluation.conformal import HeldOut, class_odds, learn_conformity
from varscale.functional import Whitening, class_spread, effective_dimensions, prototypes
from varscale.learn.quadrature import GUESS, Similarities, fit_law

FOLDS, DEALS = 5, 4
"""Number of folds, and how often classes are dealt into them at random."""
FOLD_CLASSES = 5
"""Least number of classes in a fold: tasks of two or three ways say little about many ways."""
MIN_CLASSES = 10
"""With fewer base classes none is held out."""
MOST_DIMENSIONS = 2048
"""With more, estimating a covariance within classes takes too long."""
LARGEST_BASE = 50_000
"""With more items, a sample of them teaches."""
SHRINKAGES = (0.9, 0.97)
"""Of the covariance within classes towards the identity, before whitening by it: strongly, or
hardly. Held-out base classes tell which."""
EVERY = 4
"""Every how many-th task of the first deal serves to choose it."""
MOST_TASKS = 1000
"""Tasks that teach the scale and its laws, at most; more of the same classes tell little more."""
SOME = 1500
"""Items that tell how many dimensions the variance within classes fills."""
SPREAD = 0.1
"""How far the scale of a task may differ from what its classes' distance says, in its logarithm,
where the base classes are. Elsewhere it may differ by more."""


@torch.inference_mode(False)  # it learns, whatever it is called under
def learn_prior(
    x: Float[Tensor, "item dim"],
    labels: Int[np.ndarray, " item"],
    *,
    seed: int,
    names: Float[Tensor, "way dim"] | None = None,
) -> Prior:
    """Learn from items of classes 0, 1, ...; too few classes leave the broad prior.

    `names` are embeddings of the names of the classes, rows of NaN where there is none.
    """
    if names is not None:
        prior = learn_prior(x, labels, seed=seed)
        return replace(prior, name_gap=learn_gap(prior, x, labels, names))
    sizes = np.bincount(labels)
    kept = np.flatnonzero(sizes[labels] > 1)
    unit = unit_of(x.abs().max().double())
    if (sizes > 1).sum() < MIN_CLASSES:
        return broad_prior(x.shape[1], unit.item())
    if unit != 1:  # the scale of the cosine does not depend on the size
        x = (x.double() / unit).to(x.dtype)
    kept = kept[sample_items(labels[kept], seed)]
    x, labels = x[torch.from_numpy(kept)], number_classes(labels[kept])
    n_classes = int(labels.max()) + 1
    orders = uniform(seed, "folds", 0, DEALS, n_classes).argsort(1)
    n_folds = min(FOLDS, n_classes // FOLD_CLASSES)
    folds = [order[k::n_folds] for order in orders for k in range(n_folds)]

    def hold_out(shrinkage: float | None, numbers: range) -> list[Similarities]:
        drawn = []
        for number in numbers:
            inside = np.isin(labels, folds[number])
            metric = learn_metric(x[~inside], number_classes(labels[~inside]), shrinkage)
            fold, renumbered = labels[inside], number_classes(labels[inside])
            drawn += draw_similarities(metric, x[inside], renumbered, fold, seed, number)
        return drawn

    enough = _is_enough((1 - 1 / n_folds) * (len(x) - n_classes), x.shape[1])
    first = {s: hold_out(s, range(n_folds)) for s in (SHRINKAGES if enough else (None,))}
    shrinkage = _choose(first, n_classes)
    tasks = join(first[shrinkage] + hold_out(shrinkage, range(n_folds, len(folds))))
    step = -(-sum(len(s.labels) for s in tasks) // MOST_TASKS)
    law = fit_law([s.every(step) for s in tasks], effective_tasks=n_classes / 2, init=GUESS)
    seen = [
        HeldOut(
            s.shot,
            s.own.flatten(),
            class_odds(law.own_probability(s), s.similarity.shape[-1]).flatten(),
            s.classes.flatten(),
        )
        for s in tasks
    ]
    metric = learn_metric(x, labels, shrinkage)
    return replace(
        metric,
        **asdict(law),
        spread=SPREAD,
        conformity=learn_conformity(seen),
        n_classes=n_classes,
        n_items=len(x),
        unit=unit.item(),
    )


def sample_items(labels: Int[np.ndarray, " item"], seed: int) -> Int[np.ndarray, " kept"]:
    """Rows of `LARGEST_BASE` items at most: as many of each class, of all classes if possible."""
    if len(labels) <= LARGEST_BASE:
        return np.arange(len(labels))
    random = uniform(seed, "base items", 0, 1, len(labels))[0]
    order = np.lexsort((random, labels))  # by class, then at random
    sizes = np.bincount(number_classes(labels))
    place = np.arange(len(labels)) - np.repeat(sizes.cumsum() - sizes, sizes)  # within the class
    most = max(2, int(np.searchsorted(np.bincount(place).cumsum(), LARGEST_BASE, side="right")))
    return np.sort(order[place < most][:LARGEST_BASE])


def learn_gap(
    prior: Prior,
    x: Float[Tensor, "item dim"],
    labels: Int[np.ndarray, " item"],
    names: Float[Tensor, "way dim"],
) -> Float[Tensor, " dim"] | None:
    """Mean difference of names and class means, over classes that have both (M43)."""
    sizes = torch.from_numpy(np.bincount(labels, minlength=len(names)))
    both = ~names.isnan().any(-1) & (sizes > 0)
    if both.sum() < 2:
        return None
    total = torch.zeros(len(names), x.shape[1], dtype=torch.float64)
    total.index_add_(0, torch.from_numpy(labels), prior.embed(x.double()))
    means = total[both] / sizes[both].unsqueeze(-1)
    return (prior.embed(names[both].double()) - means).mean(0)


def learn_metric(
    x: Float[Tensor, "item dim"], labels: Int[np.ndarray, " item"], shrinkage: float | None
) -> Prior:
    """Learn origin, axes and variances from classes; the scale is 1."""
    classes, n_classes = torch.from_numpy(labels), int(labels.max()) + 1
    whitening = Whitening.learn(x, classes, shrinkage=shrinkage)
    z = whitening(x.double())
    means = prototypes(z, classes, n_classes)
    counts = torch.bincount(classes)
    residual = z - means[classes]
    square = torch.bincount(classes, residual.square().sum(-1))
    within = (square / (counts - 1)).mean().item()
    between = class_spread(means).item() - within * counts.double().reciprocal().mean().item()
    some = slice(None, None, -(-len(x) // SOME))
    unbiased = (counts / (counts - 1)).sqrt()[classes[some]].unsqueeze(-1)
    dimensions = effective_dimensions(residual[some] * unbiased, classes[some])
    return Prior(
        whitening,
        1.0,
        within=within,
        between=max(between, 0.0),
        dimensions=dimensions,
        adapts=True,
    )


def _choose(tried: dict[float | None, list[Similarities]], n_classes: int) -> float | None:
    """The shrinkage under which the best law explains held-out tasks best."""
    if len(tried) == 1:
        return next(iter(tried))
    values = {}
    for shrinkage, drawn in tried.items():
        some = [each.every(EVERY) for each in join(drawn)]
        law = fit_law(some, effective_tasks=n_classes / 2, init=GUESS)
        values[shrinkage] = law.nll(some)
    return min(values, key=values.__getitem__)


def _is_enough(items: float, dim: int) -> bool:
    """Whether there are enough items beyond their classes to estimate a covariance."""
    return items >= dim and dim <= MOST_DIMENSIONS
