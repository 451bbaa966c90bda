"""Learn a scaler on fixed embeddings: many tasks a step, of mixed ways and shots."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.data.mixed import MixedTasks
from varscale.learn.optimizers import one_optimizer, optimizers, steps_itself
from varscale.learn.selection import class_nll, simplest_good
from varscale.learn.step import Step
from varscale.model import ScaledModel
from varscale.model.rows import episode_of, predict_rows


def learn_scaler(
    model: ScaledModel,
    table: Float[Tensor, "item dim"],
    tasks: MixedTasks,
    *,
    steps: int = 300,
    tasks_per_step: int = 16,
    lr: float = 0.05,
    seed: int = 0,
) -> None:
    """Learn a model's scaler, and its other weights, on a table of embeddings.

    The learning rate falls to zero along a cosine; that of a published scaler stays.

    Args:
        model: A model whose backbone takes rows of the table.
        table: Embeddings.
        tasks: Draws rows of it.
        steps: Steps.
        tasks_per_step: Tasks of each, all of one shape.
        lr: Learning rate of Adam, for all that has none of its own.
        seed: Seed of the draws of the scale.
    """
    together = bool(model.scaler.log_parameters())  # one schedule for all that is learned
    found = [one_optimizer(model, lr)] if together else optimizers(model, queries_per_task=1, lr=lr)
    take_step = Step(found, own=steps_itself(model.scaler) and not together)
    model.train()
    for step in range(steps):
        rows = tasks.batch(step, tasks_per_step, table.device)
        loss = model.loss(episode_of(table, rows), index=step * tasks_per_step, seed=seed)
        take_step(
            loss.total,
            factor=cosine_factor(step, steps),
            own_factor=model.objective.scaler_factor(rows.query.shape[1]),  # shapes differ in it
        )
    model.eval()


def choose_effective_tasks(
    make: Callable[[float], ScaledModel],
    effective_tasks: Sequence[float],
    table: Float[Tensor, "item dim"],
    labels: Int[np.ndarray, " item"],
    held_out: Float[Tensor, "other dim"],
    held_out_labels: Int[np.ndarray, " other"],
    *,
    seed: int = 0,
    **how: Any,
) -> tuple[float, ScaledModel]:
    """Choose the number of independent tasks that the data are worth, on held-out classes (M30).

    Args:
        make: Makes a model for a number of effective tasks.
        effective_tasks: Numbers to try.
        table: Embeddings of the training classes.
        labels: Their classes, as integers.
        held_out: Embeddings of other classes.
        held_out_labels: Their classes.
        seed: Seed of training tasks and draws; the held-out tasks are always the same.
        **how: Options of `learn`.

    Returns:
        The number that was chosen, and its model.
    """
    if not len(effective_tasks):
        raise ValueError("Expected at least one number of tasks to choose from, got none.")
    for rows, given in ((table, labels), (held_out, held_out_labels)):
        if len(rows) != len(given):
            raise ValueError(f"Expected a label for each of {len(rows)} items, got {len(given)}.")
    tasks = MixedTasks(np.asarray(labels), seed=seed)
    others = MixedTasks(np.asarray(held_out_labels), stream="held out")
    for which, drawn in (("training", tasks), ("held-out", others)):
        if not len(drawn):
            raise ValueError(f"Expected two {which} classes with two items each, got fewer.")
    worth, losses = sorted(effective_tasks), []
    models = [make(n) for n in worth]
    for model in models:
        learn_scaler(model, table, tasks, seed=seed, **how)
        losses.append(held_out_nll(model, held_out, others))
    best = simplest_good(np.stack(losses))
    return worth[best], models[best]


@torch.no_grad()
def held_out_nll(
    model: ScaledModel,
    table: Float[Tensor, "item dim"],
    tasks: MixedTasks,
    *,
    rounds: int = 10,
    tasks_per_round: int = 20,
) -> Float[np.ndarray, " class"]:
    """Mean NLL of the queries of every class that is drawn.

    Args:
        model: The model.
        table: Embeddings.
        tasks: Draws rows of it.
        rounds: Batches of every shape.
        tasks_per_round: Tasks of a batch.
    """

    def predict() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for step in range(rounds * len(tasks)):
            rows = tasks.batch(step, tasks_per_round, table.device)
            log_p = predict_rows(model, table, rows)
            yield log_p, rows.query_labels, rows.classes.gather(1, rows.query_labels)

    return class_nll(predict())


def cosine_factor(step: int, steps: int) -> float:
    """Factor that falls from 1 to 0 over the steps, along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * step / steps))
