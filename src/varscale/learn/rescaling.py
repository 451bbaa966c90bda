"""Find the scale that explains some tasks best, with everything else as it is: a search in 1-D."""

import copy
import math
from collections.abc import Callable, Sequence

import torch

from varscale.core.episode import Episode
from varscale.functional import query_nll
from varscale.model import ScaledModel
from varscale.scalers.stochastic import LOG_PRIOR_MEAN, LOG_PRIOR_SIGMA

FIRST_TASKS = 16
"""Tasks that tell the initial value."""

PRIOR_MEAN, PRIOR_SIGMA = math.log(LOG_PRIOR_MEAN), LOG_PRIOR_SIGMA
"""Prior of log alpha in the search. It weighs no more than a query: it decides where none errs."""

WIDEST = math.log(1e6)
"""The search looks at factors of the scale up to this one and down to its inverse, in log."""


def begin_at_data(model: ScaledModel, tasks: Sequence[Episode]) -> float:
    """Set the scale to the one that explains the first tasks best, before any step (M32).

    The embedding is that of training, batch statistics included; no running statistics change.

    Args:
        model: Its scaler must be one of log alpha.
        tasks: Raw items with the labels of the queries.

    Returns:
        The factor by which the scale changed.
    """
    location = location_of(model)
    given = location.mean().item()
    host = copy.deepcopy(model.host).train()
    with torch.no_grad():
        location.fill_(PRIOR_MEAN)  # so that what was given leaves no trace, not even of rounding
        embedded = [replace_items(task, *host.embed(task)) for task in tasks]
    return math.exp(PRIOR_MEAN - given) * rescale(model, embedded)


def replace_items(task: Episode, support: torch.Tensor, query: torch.Tensor) -> Episode:
    """The same task with other items: their embeddings."""
    return Episode.trust(**{**vars(task), "support": support, "query": query})


@torch.no_grad()
def rescale(model: ScaledModel, tasks: Sequence[Episode]) -> float:
    r"""Multiply the scale by the factor with the least NLL of some embedded tasks (M32).

    $f = \arg\min_f \sum_j -\log p_{j, y_j}(f \alpha) + \frac{(\log f\alpha - \log \mu_0)^2}{2
    \sigma_0^2}$: one number, whatever the size of the scale; the prior counts as one query would.

    Args:
        model: Its scaler must be one of log alpha.
        tasks: Embedded items with the labels of the queries.

    Returns:
        The factor.
    """
    location = location_of(model)
    before = location.clone()
    mean = before.mean().item()

    def objective(shift: float) -> float:
        location.copy_(before + shift)
        prior = (mean + shift - PRIOR_MEAN) ** 2 / (2 * PRIOR_SIGMA**2)
        total = prior
        for task in tasks:
            assert task.query_labels is not None
            log_p = model.predict(
                task.support, task.support_labels, task.query, n_way=task.n_way, checked=True
            )
            total += query_nll(log_p, task.query_labels).sum().item()
        return total

    shift = least(objective, -WIDEST, WIDEST)
    location.copy_(before + shift)
    return math.exp(shift)


def location_of(model: ScaledModel) -> torch.nn.Parameter:
    """The location of log alpha; raises ValueError if a scaler does not learn it."""
    if not (found := model.scaler.log_parameters()):
        raise ValueError(
            f"Expected a scale that is learned in log space, got {model.scaler}. Use a log-normal "
            "or hierarchical family."
        )
    return found[0]


def least(function: Callable[[float], float], low: float, high: float, to: float = 1e-4) -> float:
    """Find where a function of one number with one minimum is least, by the golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = function(a), function(b)
    while high - low > to:
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = function(b)
    return (low + high) / 2
