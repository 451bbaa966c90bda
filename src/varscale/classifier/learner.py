"""Learn a prior from base classes: a metric, its scale, and thresholds for rejection.

The metric (origin, whitening, one weight per dimension) is learned on all base classes. Its scale
is not: on classes that a metric was learned on, distances look better than they are. So the classes
are dealt into folds. The scale, the shot law and the conformal thresholds are learned on tasks of
each fold, under a metric learned on the other folds.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.classifier.prior import Prior, WeightedCosine, unit_of
from varscale.classifier.similarities import draw_similarities, join
from varscale.core.labels import number_classes
from varscale.core.random import uniform
from varscale.core.registry import unknown
from varscale.data.mixed import MixedTasks
from varscale.evaluation.conformal import class_quantiles
from varscale.functional import Whitening, origin_factor
from varscale.learn import learn_scaler
from varscale.learn.quadrature import Similarities, fit_scale, similarities_nll
from varscale.learn.selection import simplest_good
from varscale.model import create
from varscale.model.head import Scale

FOLDS, DEALS = 5, 4
"""Number of folds, and how often classes are dealt into them at random."""
FOLD_CLASSES = 5
"""Least number of classes in a fold: tasks of two or three ways say little about many ways."""
MIN_CLASSES = 10
"""With fewer base classes none is held out, and embeddings are not whitened."""
MOST_DIMENSIONS = 2048
"""With more, estimating a covariance within classes takes too long."""


ScalerName = Literal["svs", "d-svs"]
"""One scale; or one for each dimension under the hierarchical prior."""


class Recipe(NamedTuple):
    """How to learn a metric: with D-SVS if there is an initial scale."""

    shrinkage: float | None
    effective_tasks: float | None = None
    start: Scale | None = None


@dataclass(frozen=True)
class PriorLearner:
    """Learns a prior from base classes, with the arguments of `FewShotClassifier`.

    `shrinkage="auto"` is 0.9 where the base set has ten classes and as many items beyond its
    classes as dimensions, else `None`. `effective_tasks="cv"` chooses an eighth of the number of
    classes, half or twice as many: the least within one standard error of the best (M30).
    """

    scaler: ScalerName = "svs"
    center: bool = True
    shrinkage: float | Literal["auto"] | None = "auto"
    effective_tasks: float | Literal["cv"] | None = None
    init: float = 20.0
    steps: int = 150
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scaler not in get_args(ScalerName):
            raise unknown("scaler", self.scaler, get_args(ScalerName))
        if not 0 < self.init < math.inf:
            raise ValueError(f"Expected init > 0, got {self.init!r}.")
        if self.steps < 1:
            raise ValueError(f"Expected steps >= 1, got {self.steps!r}.")
        if not (self.shrinkage in (None, "auto") or _is_within(self.shrinkage, 0, 1)):
            raise ValueError(f'Expected shrinkage in 0..1, "auto" or None, got {self.shrinkage!r}.')
        tasks = self.effective_tasks
        if not (tasks in (None, "cv") or _is_within(tasks, 1e-6, 1e12)):
            raise ValueError(f'Expected effective_tasks > 0, "cv" or None, got {tasks!r}.')

    @torch.inference_mode(False)  # it learns, whatever it is called under
    def __call__(
        self, x: Float[Tensor, "item dim"], labels: Int[np.ndarray, " item"]
    ) -> Prior | None:
        """Learn from items of classes 0, 1, ...; `None` if fewer than two have two items."""
        unit = unit_of(x.abs().max().double())
        if unit != 1:  # the scale of the cosine does not depend on the size
            x = (x.double() / unit).to(x.dtype)
        sizes = np.bincount(labels)
        kept = sizes[labels] > 1
        if (sizes > 1).sum() < 2:
            return None
        x, labels = x[torch.from_numpy(kept)], number_classes(labels[kept])
        n_classes = int(labels.max()) + 1
        recipes = self._recipes(x, labels, n_classes)
        drawn = [self._draw(recipe, x, labels) for recipe in recipes]
        origin = self._origin_factor(n_classes)
        scales = [self._fit(tasks, n_classes, origin) for tasks in drawn]
        best, conformity = 0, None
        if len(recipes) > 1:
            losses = [similarities_nll(t, s) for t, s in zip(drawn, scales, strict=True)]
            best = simplest_good(np.stack(losses))
        if n_classes >= MIN_CLASSES:
            own = [(s.shot, s.own.flatten(), s.classes.flatten()) for s in drawn[best]]
            conformity = class_quantiles(own)
        metric = self._metric(recipes[best], x, labels)
        if unit != 1:
            whitening = Whitening(metric.whitening.mean.double() * unit, metric.whitening.matrix)
            metric = WeightedCosine(whitening, metric.weight)
        q, offset = scales[best].q, scales[best].shot_offset
        mean, std = q.mean.item(), q.stddev.item()
        return Prior(metric, mean, std, float(offset or 0), conformity, n_classes, self.center)

    def best_on(self, metric: WeightedCosine, x: Tensor, labels: Int[np.ndarray, " item"]) -> Scale:
        """Find the scale that explains tasks of these very classes best, under a given metric."""
        tasks = draw_similarities(metric, x, labels, labels, self.seed, -1)
        return self._fit(tasks, int(labels.max()) + 1)

    def _recipes(self, x: Tensor, labels: np.ndarray, n_classes: int) -> list[Recipe]:
        """List the ways to learn a metric that are worth trying; the same for every fold."""
        dim, enough = x.shape[1], n_classes >= MIN_CLASSES
        shrinkage = None if self.shrinkage == "auto" else self.shrinkage
        if self.shrinkage == "auto" and enough and dim <= MOST_DIMENSIONS:
            in_folds = (1 - 1 / folds_of(n_classes)) * (len(x) - n_classes)
            shrinkage = 0.9 if in_folds >= dim else None
        plain = Recipe(shrinkage)
        if self.scaler == "svs" or not enough:
            return [plain]
        start = self.best_on(self._metric(plain, x, labels), x, labels)
        worth = [n_classes / 8 if self.effective_tasks is None else self.effective_tasks]
        if self.effective_tasks == "cv":
            worth = [n_classes / 16, n_classes / 8, n_classes / 4]
        return [Recipe(shrinkage, float(effective_tasks), start) for effective_tasks in worth]

    def _metric(self, recipe: Recipe, x: Tensor, labels: np.ndarray) -> WeightedCosine:
        """Learn a metric from classes."""
        whitening = Whitening.learn(
            x, torch.from_numpy(labels), center=self.center, shrinkage=recipe.shrinkage
        )
        if recipe.start is None:
            return WeightedCosine(whitening, torch.ones(1))
        model = create(
            backbone="identity",
            backbone_options={"dim": x.shape[1]},
            metric="cosine",
            scaler="d-svs",
            scaler_options={
                "family": "hierarchical",
                "kl_weight": "elbo",
                "effective_tasks": recipe.effective_tasks,
                "init": recipe.start.q.mean.item(),
            },
            shot_offset=max(float(recipe.start.shot_offset or 0), 0.01),
        )
        model, table = model.to(x.device, non_blocking=True), whitening(x).float()
        tasks = MixedTasks(labels, seed=self.seed, stream="weights")
        learn_scaler(model, table, tasks, steps=self.steps, tasks_per_step=8, seed=self.seed)
        with torch.no_grad():
            weight = model.scaler(table.new_zeros(x.shape[1])).mean
        return WeightedCosine(whitening, (weight / weight.mean()).to(x.dtype))

    def _draw(self, recipe: Recipe, x: Tensor, labels: np.ndarray) -> list[Similarities]:
        """Draw tasks of held-out classes, compared by metrics of the others.

        Draw tasks of all classes if they are too few for that, or the metric learns nothing.
        """
        n_classes = int(labels.max()) + 1
        learns = self.center or recipe.shrinkage is not None or recipe.start is not None
        if n_classes < MIN_CLASSES or not learns:
            metric = self._metric(recipe, x, labels)
            return draw_similarities(metric, x, labels, labels, self.seed, 0)
        orders = uniform(self.seed, "folds", 0, DEALS, n_classes).argsort(1)
        folds, drawn = folds_of(n_classes), []
        deals = DEALS if recipe.start is None else DEALS // 2  # D-SVS learns again in every fold
        for number in range(folds * deals):
            inside = np.isin(labels, orders[number // folds][number % folds :: folds])
            metric = self._metric(recipe, x[~inside], number_classes(labels[~inside]))
            fold, numbers = labels[inside], number_classes(labels[inside])
            drawn += draw_similarities(metric, x[inside], numbers, fold, self.seed, number)
        return join(drawn)

    def _origin_factor(self, n_classes: int) -> float:
        """Factor of the scale in the tasks of the folds, due to the origin (M31)."""
        if not self.center:
            return 1.0
        if n_classes < MIN_CLASSES:
            return origin_factor(n_classes, own=True)
        return origin_factor(n_classes * (1 - 1 / folds_of(n_classes)), own=False)

    def _fit(self, tasks: list[Similarities], n_classes: int, origin: float = 1.0) -> Scale:
        return fit_scale(tasks, effective_tasks=n_classes / 2, init=self.init, origin=origin)


def folds_of(n_classes: int) -> int:
    """Number of folds for a number of classes."""
    return min(FOLDS, n_classes // FOLD_CLASSES)


def _is_within(value: object, low: float, high: float) -> bool:
    return isinstance(value, Real) and low <= float(value) <= high
