"""Learning a scaler on embeddings that stay as they are: many tasks a step, of mixed shapes."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.data.sampler import EpisodeRows, EpisodeSampler
from varscale.episode import Episode
from varscale.held_out import class_nll, simplest_good
from varscale.model import ScaledModel
from varscale.optimization import Schedule

WAYS, SHOTS, QUERIES = (5, 10, 20), (1, 2, 5, 10), 10
"""Classes, supports and queries per class of training tasks, where the data have as many."""


class MixedTasks:
    """Tasks of several ways and shots in turn, as far as classes of unequal size allow.

    A class takes part in the tasks that it has items for; a task of n shots is made if at least two
    classes have more than n items.

    Args:
        labels: Class of every item, as integers.
        ways: Classes per task.
        shots: Supports per class.
        n_query: Queries per class, at most.
        seed: Seed of the tasks.
        stream: Name of their stream.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, " item"],
        *,
        ways: Sequence[int] = WAYS,
        shots: Sequence[int] = SHOTS,
        n_query: int = QUERIES,
        seed: int = 0,
        stream: str = "train",
    ) -> None:
        classes, sizes = np.unique(labels, return_counts=True)
        self.parts: list[tuple[np.ndarray, EpisodeSampler]] = []
        for shot in shots:
            fit = sizes[sizes > shot]
            if len(fit) < 2:
                continue
            typical = min(np.median(fit), np.sort(fit)[-2])  # at least two classes have as many
            queries = int(np.clip(typical - shot, 1, n_query))
            rows = np.flatnonzero(np.isin(labels, classes[sizes >= shot + queries]))
            n_classes = int((sizes >= shot + queries).sum())
            for way in dict.fromkeys(min(way, n_classes) for way in ways):
                name = f"{stream}/{way}w{shot}s"
                sampler = EpisodeSampler(labels[rows], way, shot, queries, seed=seed, stream=name)
                self.parts.append((rows, sampler))

    def __len__(self) -> int:
        """Number of shapes; without any, nothing can be learned."""
        return len(self.parts)

    def batch(self, step: int, tasks: int, device: torch.device | None = None) -> EpisodeRows:
        """Tasks of one shape, the shapes taking turns, on a device."""
        turn, place = divmod(step, len(self.parts))
        rows, sampler = self.parts[place]
        drawn = sampler.batch(turn * tasks, tasks)
        table = torch.from_numpy(rows)
        found = {**vars(drawn), "support": table[drawn.support], "query": table[drawn.query]}
        return EpisodeRows(**{k: x.to(device, non_blocking=True) for k, x in found.items()})


def learn(
    model: ScaledModel,
    table: Float[Tensor, "item dim"],
    tasks: MixedTasks,
    *,
    steps: int = 300,
    tasks_per_step: int = 16,
    lr: float = 0.05,
    seed: int = 0,
) -> None:
    """Learn a model's scaler, and whatever else of it has weights, on a table of embeddings.

    The rate falls to zero along a cosine; a scaler's own rate stays.

    Args:
        model: A model whose backbone takes rows of the table.
        table: Embeddings.
        tasks: Draws rows of it.
        steps: Steps.
        tasks_per_step: Tasks of each, all of one shape.
        lr: Rate of Adam, for all that has no rate of its own.
        seed: Seed of the draws of the scale.
    """
    optimizers = model.optimizers(queries_per_task=1, lr=lr)
    schedules = [Schedule(optimizer) for optimizer in optimizers]
    own = schedules.pop() if model.scaler.steps_itself else None  # its rate does not fall
    model.train()
    for step in range(steps):
        rows = tasks.batch(step, tasks_per_step, table.device)
        episode = Episode.trusted(
            support=table.index_select(0, rows.support.flatten()).view(*rows.support.shape, -1),
            support_labels=rows.support_labels,
            query=table.index_select(0, rows.query.flatten()).view(*rows.query.shape, -1),
            query_labels=rows.query_labels,
            n_way=rows.n_way,
        )
        model.loss(episode, index=step * tasks_per_step, seed=seed).total.backward()
        for schedule in schedules:
            schedule.set(cosine(step, steps))
        if own is not None:  # on the sum over the queries, of which shapes have unequal numbers
            own.set(model.objective.scaler_factor(rows.query.shape[1]))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    model.eval()


def choose_n_tasks(
    make: Callable[[float], ScaledModel],
    n_tasks: Sequence[float],
    table: Float[Tensor, "item dim"],
    labels: Int[np.ndarray, " item"],
    held_out: Float[Tensor, "other dim"],
    held_out_labels: Int[np.ndarray, " other"],
    *,
    seed: int = 0,
    **how: Any,
) -> tuple[float, ScaledModel]:
    """Learn models for several numbers of independent tasks; keep one by held-out classes (M30).

    Args:
        make: A model that believes its classes to be worth so many independent tasks.
        n_tasks: How many to try.
        table: Embeddings of the training classes.
        labels: Their classes, as integers.
        held_out: Embeddings of other classes.
        held_out_labels: Their classes.
        seed: Seed of training tasks and draws; the held-out tasks are always the same.
        **how: Options of `learn`.

    Returns:
        The number that was chosen, and its model.
    """
    if not len(n_tasks):
        raise ValueError("Expected at least one number of tasks to choose from, got none.")
    for rows, given in ((table, labels), (held_out, held_out_labels)):
        if len(rows) != len(given):
            raise ValueError(f"Expected a label for each of {len(rows)} items, got {len(given)}.")
    tasks = MixedTasks(np.asarray(labels), seed=seed)
    others = MixedTasks(np.asarray(held_out_labels), stream="held out")
    for which, drawn in (("training", tasks), ("held-out", others)):
        if not len(drawn):
            raise ValueError(f"Expected two {which} classes with two items each, got fewer.")
    worth, losses = sorted(n_tasks), []
    models = [make(n) for n in worth]
    for model in models:
        learn(model, table, tasks, seed=seed, **how)
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
        model: A model, learned.
        table: Embeddings.
        tasks: Draws rows of it.
        rounds: How often every shape has its turn.
        tasks_per_round: Tasks of one shape at once.
    """

    def predicted() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for step in range(rounds * len(tasks)):
            rows = tasks.batch(step, tasks_per_round, table.device)
            support, query = table[rows.support], table[rows.query]
            labels = rows.support_labels
            log_p = model.predict(support, labels, query, n_way=rows.n_way, checked=True)
            yield log_p, rows.query_labels, rows.classes.gather(1, rows.query_labels)

    return class_nll(predicted())


def cosine(step: int, steps: int) -> float:
    """From 1 to 0 over the steps, along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * step / steps))
