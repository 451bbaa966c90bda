"""What base classes teach about all others: a metric, its scale, and when to answer with none.

The metric (origin, whitening, one weight per dimension) is learned on all base classes. Its scale
is not: on classes that a metric has seen, distances look better than they are. So the classes are
dealt into folds; each fold is looked at with a metric learned on the others, and what is seen there
teaches the scale, the shot law and the conformal thresholds.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from varscale.conformal import class_quantiles
from varscale.factory import create
from varscale.frozen import MixedTasks, learn
from varscale.functional import log_softmax, query_nll
from varscale.held_out import class_nll, simplest_good
from varscale.labels import numbered
from varscale.learned_scale import GUESS, LearnedScale, Metric, unit_of
from varscale.random import uniform
from varscale.registry import unknown
from varscale.scalers import SVS
from varscale.seen import Seen, joined, tasks_seen
from varscale.shots import shot_factor
from varscale.whitening import Whitening, origin_factor

FOLDS, DEALS = 5, 4
"""Folds that the base classes are dealt into, and how often: which classes meet is chance."""
FOLD_CLASSES = 5
"""Classes of a fold, at least: tasks of two or three ways say little of tasks of many."""
MIN_CLASSES = 10
"""With fewer base classes none is held out, and the axes are left alone."""
MOST_DIMENSIONS = 2048
"""With more, a covariance within classes is not worth its time."""

PRIOR_SPREAD = 1.0
"""Of the logarithm of the scale, before anything is seen."""
RESTARTS = 10
"""Of the search for the scale, at most."""
BOUNDS = [(-7.0, 12.0), (0.01, PRIOR_SPREAD), (-7.0, 5.0)]
"""Of the logarithm of the scale, its spread, and the logarithm of the shot offset."""

ScalerName = Literal["svs", "d-svs"]
"""One scale; or one for each dimension under the hierarchical prior."""


class Scale(NamedTuple):
    """A scale's posterior, and the shot law."""

    mean: float
    std: float
    shot_offset: float


class Recipe(NamedTuple):
    """How a metric is made of classes: by D-SVS where there is a scale to start from."""

    shrinkage: float | None
    n_tasks: float | None = None
    start: Scale | None = None


@dataclass(frozen=True)
class ScaleLearner:
    """How a scale is learned from base classes.

    Args:
        scaler: `svs`, or `d-svs` for one weight per dimension under the hierarchical prior.
        center: Put the origin at the mean of the base classes.
        shrinkage: Of the covariance within classes towards the identity, before whitening by it;
            `None` for no whitening. `"auto"` is 0.9 where the base set has ten classes and as many
            items beyond its classes as dimensions, else `None`.
        n_tasks: What the base classes are worth, in independent tasks: an eighth of their number
            when not given. `"cv"` chooses that, half or twice as many by held-out classes: the
            least within one standard error of the best (M30).
        init_scale: Where the scale starts.
        steps: Steps in which the weights of dimensions are learned.
        seed: Seed of folds, tasks and draws.
    """

    scaler: ScalerName = "svs"
    center: bool = True
    shrinkage: float | Literal["auto"] | None = "auto"
    n_tasks: float | Literal["cv"] | None = None
    init_scale: float = 20.0
    steps: int = 150
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scaler not in get_args(ScalerName):
            raise unknown("scaler", self.scaler, get_args(ScalerName))
        if not 0 < self.init_scale < math.inf:
            raise ValueError(f"Expected init_scale > 0, got {self.init_scale!r}.")
        if self.steps < 1:
            raise ValueError(f"Expected steps >= 1, got {self.steps!r}.")
        if not (self.shrinkage in (None, "auto") or _is_within(self.shrinkage, 0, 1)):
            raise ValueError(f'Expected shrinkage in 0..1, "auto" or None, got {self.shrinkage!r}.')
        if not (self.n_tasks in (None, "cv") or _is_within(self.n_tasks, 1e-6, 1e12)):
            raise ValueError(f'Expected n_tasks > 0, "cv" or None, got {self.n_tasks!r}.')

    @torch.inference_mode(False)  # it learns, whatever it is called under
    def __call__(
        self, x: Float[Tensor, "item dim"], labels: Int[np.ndarray, " item"]
    ) -> LearnedScale | None:
        """Learn from items of base classes; `None` where no two classes have two items.

        Args:
            x: Embeddings.
            labels: Their classes, as numbers from 0.
        """
        unit = unit_of(x.abs().max().double())
        if unit != 1:  # the scale of the cosine does not depend on the size
            x = (x.double() / unit).to(x.dtype)
        sizes = np.bincount(labels)
        kept = sizes[labels] > 1
        if (sizes > 1).sum() < 2:
            return None
        x, labels = x[torch.from_numpy(kept)], numbered(labels[kept])
        n_classes = int(labels.max()) + 1
        recipes = self._recipes(x, labels, n_classes)
        looks = [self._look(recipe, x, labels) for recipe in recipes]
        factor = self._origin_factor(n_classes)
        learned = [self._scale(seen, n_classes, factor) for seen in looks]
        best, conformity = 0, None
        if len(recipes) > 1:
            losses = [_class_nll(s, q, factor) for s, q in zip(looks, learned, strict=True)]
            best = simplest_good(np.stack(losses))
        if n_classes >= MIN_CLASSES:
            own = [(s.shot, s.own.flatten(), s.classes.flatten()) for s in looks[best]]
            conformity = class_quantiles(own)
        metric = self._metric(recipes[best], x, labels)
        if unit != 1:
            whitening = Whitening(metric.whitening.mean.double() * unit, metric.whitening.matrix)
            metric = Metric(whitening, metric.weight)
        scale = learned[best]
        return LearnedScale(metric, *scale, conformity, n_classes, self.center)

    def best_on(self, metric: Metric, x: Tensor, labels: Int[np.ndarray, " item"]) -> Scale:
        """The scale that explains tasks of these very classes best, at a given metric."""
        seen = tasks_seen(metric, x, labels, labels, self.seed, -1)
        return self._scale(seen, int(labels.max()) + 1)

    def _recipes(self, x: Tensor, labels: np.ndarray, n_classes: int) -> list[Recipe]:
        """The ways to a metric that are worth trying; the same for every fold."""
        dim, enough = x.shape[1], n_classes >= MIN_CLASSES
        shrinkage = None if self.shrinkage == "auto" else self.shrinkage
        if self.shrinkage == "auto" and enough and dim <= MOST_DIMENSIONS:
            in_folds = (1 - 1 / folds_of(n_classes)) * (len(x) - n_classes)
            shrinkage = 0.9 if in_folds >= dim else None
        plain = Recipe(shrinkage)
        if self.scaler == "svs" or not enough:
            return [plain]
        start = self.best_on(self._metric(plain, x, labels), x, labels)
        worth = [n_classes / 8 if self.n_tasks is None else self.n_tasks]
        if self.n_tasks == "cv":
            worth = [n_classes / 16, n_classes / 8, n_classes / 4]
        return [Recipe(shrinkage, float(n_tasks), start) for n_tasks in worth]

    def _metric(self, recipe: Recipe, x: Tensor, labels: np.ndarray) -> Metric:
        """The metric that these classes ask for."""
        whitening = Whitening.learned(
            x, torch.from_numpy(labels), center=self.center, shrinkage=recipe.shrinkage
        )
        if recipe.start is None:
            return Metric(whitening, torch.ones(1))
        model = create(
            backbone="identity",
            backbone_options={"dim": x.shape[1]},
            metric="cosine",
            scaler="d-svs",
            scaler_options={
                "prior": "hierarchical",
                "kl_weight": "elbo",
                "n_tasks": recipe.n_tasks,
                "init_loc": recipe.start.mean,
                "shot_offset": max(recipe.start.shot_offset, 0.01),
            },
        )
        tasks = MixedTasks(labels, seed=self.seed, stream="weights")
        table = whitening(x).float()
        learn(
            model.to(x.device, non_blocking=True),
            table,
            tasks,
            steps=self.steps,
            tasks_per_step=8,
            seed=self.seed,
        )
        with torch.no_grad():
            weight = model.scaler(table.new_zeros(x.shape[1])).mean
        return Metric(whitening, (weight / weight.mean()).to(x.dtype))

    def _look(self, recipe: Recipe, x: Tensor, labels: np.ndarray) -> list[Seen]:
        """Tasks of held-out classes, seen by metrics of the others.

        Of all classes, when they are too few for that, or the metric learns nothing from them.
        """
        n_classes = int(labels.max()) + 1
        learns = self.center or recipe.shrinkage is not None or recipe.start is not None
        if n_classes < MIN_CLASSES or not learns:
            return tasks_seen(self._metric(recipe, x, labels), x, labels, labels, self.seed, 0)
        orders = uniform(self.seed, "folds", 0, DEALS, n_classes).argsort(1)
        folds, seen = folds_of(n_classes), []
        deals = DEALS if recipe.start is None else DEALS // 2  # D-SVS learns anew in every fold
        for number in range(folds * deals):
            inside = np.isin(labels, orders[number // folds][number % folds :: folds])
            metric = self._metric(recipe, x[~inside], numbered(labels[~inside]))
            fold = labels[inside]
            seen += tasks_seen(metric, x[inside], numbered(fold), fold, self.seed, number)
        return joined(seen)

    def _origin_factor(self, n_classes: int) -> float:
        """What the origin does to the scale in the tasks that are looked at (M31)."""
        if not self.center:
            return 1.0
        if n_classes < MIN_CLASSES:
            return origin_factor(n_classes, own=True)
        return origin_factor(n_classes * (1 - 1 / folds_of(n_classes)), own=False)

    def _scale(self, seen: list[Seen], n_classes: int, factor: float = 1.0) -> Scale:
        """The scale and the shot law that explain what was seen.

        SVS with a log-normal posterior; the expectation over it is a quadrature, so that nothing is
        drawn and the optimum is found to the last digits. In the tasks the scale is multiplied by a
        factor.
        """
        from scipy.optimize import minimize  # scikit-learn brings it

        svs = SVS(
            prior="log-normal",
            prior_loc=GUESS * math.exp(-(PRIOR_SPREAD**2) / 2),  # its mean is the guess
            prior_scale=PRIOR_SPREAD,
            init_loc=self.init_scale,
            kl_weight="elbo",
            n_tasks=n_classes / 2,
            shot_offset=0.5,
        ).double()
        log_offset = svs.log_shot_offset
        assert isinstance(log_offset, nn.Parameter)
        assert isinstance(svs.scale, nn.Parameter)
        parameters = [svs.loc, svs.scale, log_offset]
        nodes, weights = np.polynomial.hermite_e.hermegauss(3)
        noise, share = torch.from_numpy(nodes[:, None]), torch.from_numpy(weights / weights.sum())

        def expected_nll() -> Tensor:
            alpha = factor * svs.sample(svs(torch.zeros(1)), noise)  # (node, 1)
            total = torch.zeros(len(noise), dtype=torch.float64)
            for tasks in seen:
                count = torch.tensor([float(tasks.shot)], dtype=torch.float64)
                scale = alpha * shot_factor(count, log_offset.exp())
                logits = scale.view(-1, 1, 1, 1) * tasks.similarity.double()
                total = total + query_nll(logits, tasks.labels).mean(-1)
            return (share * total).sum() / len(seen)

        def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
            vector_to_parameters(torch.from_numpy(values), parameters)
            value = expected_nll() + svs.penalty(svs(torch.zeros(1)))
            return value.item(), torch.cat(
                [g.reshape(1) for g in torch.autograd.grad(value, parameters)]
            ).numpy()

        values = parameters_to_vector(parameters).detach().numpy()
        for _ in range(RESTARTS):  # far away a line search may fail, which it takes for the end
            found = minimize(loss, values, method="L-BFGS-B", jac=True, bounds=BOUNDS)
            values = found.x
            if found.nit < 2:
                break
        loss(values)
        with torch.no_grad():
            q = svs(torch.zeros(1))
            return Scale(q.mean.item(), q.stddev.item(), log_offset.exp().item())


def _class_nll(seen: list[Seen], scale: Scale, factor: float) -> Float[np.ndarray, " class"]:
    """Mean NLL of the queries of every base class, at a factor times the mean of a scale."""

    def predicted(tasks: Seen) -> tuple[Tensor, Tensor, Tensor]:
        grown = factor * shot_factor(torch.tensor([float(tasks.shot)]), scale.shot_offset)
        log_p = log_softmax(scale.mean * grown * tasks.similarity)
        return log_p, tasks.labels, tasks.classes

    return class_nll(map(predicted, seen))


def folds_of(n_classes: int) -> int:
    """How many folds so many classes make."""
    return min(FOLDS, n_classes // FOLD_CLASSES)


def _is_within(value: object, low: float, high: float) -> bool:
    return isinstance(value, Real) and low <= float(value) <= high
