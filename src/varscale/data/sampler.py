"""Episodes as a pure function of (seed, stream, index, labels)."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Int, UInt64
from numpy.typing import ArrayLike
from torch import Tensor

from varscale.random import integers, span
from varscale.registry import unknown

Queries = Literal["balanced", "random"]
"""How queries are drawn.

- `balanced`: `n_query` of each class.
- `random`: `n_query` per task, from all items of its classes that are not supports, as TADAM does.
"""

_CHUNK = 1024  # episodes worked on at once: their arrays stay in the cache


@dataclass(frozen=True, eq=False)
class EpisodeRows:
    """Tasks as row numbers of a dataset.

    Attributes:
        support: Rows of the supports, class by class.
        support_labels: Their class in the task, 0..n_way-1.
        query: Rows of the queries.
        query_labels: Their class in the task.
        classes: The classes of the task, as the sampler's labels number them.
    """

    support: Int[Tensor, "task support"]
    support_labels: Int[Tensor, "task support"]
    query: Int[Tensor, "task query"]
    query_labels: Int[Tensor, "task query"]
    classes: Int[Tensor, "task way"]

    @property
    def n_way(self) -> int:
        """Classes per task."""
        return self.classes.shape[1]

    def __getitem__(self, tasks: slice) -> "EpisodeRows":
        """Some of the tasks."""
        return EpisodeRows(**{name: rows[tasks] for name, rows in vars(self).items()})


class EpisodeSampler:
    """Draws tasks from labelled items: `n_way` classes, then supports and queries of each.

    Episode i depends on (seed, stream, i) and the labels alone: not on what was drawn before, nor
    on how many are drawn at once. All draws are without replacement and exactly uniform.

    Args:
        labels: Class of every row, as integers.
        n_way: Classes per task.
        n_shot: Supports per class; or one number for each of the task's classes.
        n_query: Queries: see `queries`.
        seed: Seed.
        stream: Name of the stream; streams of one seed are unrelated.
        queries: See `Queries`.

    Example:
        >>> sampler = EpisodeSampler([0, 0, 0, 1, 1, 1, 2, 2, 2], n_way=2, n_shot=1, n_query=2)
        >>> sampler[7].support.shape, sampler.batch(0, 100).query.shape
        (torch.Size([1, 2]), torch.Size([100, 4]))
        >>> torch.equal(sampler[7].query, sampler.batch(5, 3).query[2:])
        True
    """

    def __init__(
        self,
        labels: ArrayLike,
        n_way: int = 5,
        n_shot: int | Sequence[int] = 1,
        n_query: int = 15,
        *,
        seed: int = 0,
        stream: str = "train",
        queries: Queries = "balanced",
    ) -> None:
        labels = np.asarray(labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(
                f"Expected one integer label per row, got {labels.dtype} of shape {labels.shape}."
            )
        if queries not in get_args(Queries):
            raise unknown("queries", queries, get_args(Queries))
        n_way, n_query, seed = map(operator.index, (n_way, n_query, seed))
        each = n_shot if isinstance(n_shot, Sequence) else [n_shot] * n_way
        shots = [operator.index(shot) for shot in each]
        if n_way < 2:
            raise ValueError(f"Expected at least 2 classes per task, got n_way={n_way}.")
        if len(shots) != n_way or min(shots) < 1:
            raise ValueError(f"Expected n_shot >= 1 for each of {n_way} classes, got {n_shot}.")
        if n_query < 0:
            raise ValueError(f"Expected n_query >= 0, got {n_query}.")
        self.n_way, self.n_query, self.seed, self.stream = n_way, n_query, seed, stream
        self.queries = queries
        self.shots = np.array(shots)
        self.class_ids, counts = np.unique(labels, return_counts=True)
        self._rows = np.argsort(labels, kind="stable")  # rows class by class
        self._sizes = counts.astype(np.uint64)
        self._first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._check_feasible()

    __iter__ = None  # it has no end

    @property
    def queries_per_task(self) -> int:
        """Queries of a task, over all classes."""
        return self.n_query * (self.n_way if self.queries == "balanced" else 1)

    def __getitem__(self, index: int) -> EpisodeRows:
        """Episode number `index`, as a batch of one."""
        return self.batch(index, 1)

    def batch(self, start: int, count: int) -> EpisodeRows:
        """Episodes number start..start+count-1."""
        index = span(start, count)
        parts = [self._draw(index[i : i + _CHUNK]) for i in range(0, max(count, 1), _CHUNK)]
        fields = (torch.from_numpy(np.concatenate(field)) for field in zip(*parts, strict=True))
        return EpisodeRows(*fields)

    def _draw(self, index: UInt64[np.ndarray, " task"]) -> tuple[np.ndarray, ...]:
        n_tasks, way = len(index), self.n_way
        n_classes = np.full((1, way), len(self._sizes), dtype=np.uint64)
        bounds = n_classes - np.arange(way, dtype=np.uint64)
        classes = distinct(integers(self.seed, f"{self.stream}/classes", index, bounds))
        sizes = self._sizes[classes]  # (task, way)
        balanced = self.queries == "balanced"
        shots, ends = self.shots, self.shots + self.n_query * balanced
        most = int(ends.max())
        # One row per task and class, as many draws as the class that needs most.
        bounds = sizes.reshape(n_tasks, way, 1) - np.arange(most, dtype=np.uint64)
        draws = integers(
            self.seed, f"{self.stream}/items", index, bounds.reshape(n_tasks, way * most)
        )
        places = distinct(draws.reshape(n_tasks * way, most)).reshape(n_tasks, way, most)
        first = self._first[classes]

        def rows(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
            """The drawn places from start to stop of each class, as rows of its own."""
            picked = [places[:, k, starts[k] : stops[k]] + first[:, k, None] for k in range(way)]
            return np.concatenate(picked, axis=1)

        supports = rows(np.zeros_like(shots), shots)
        support_labels = np.broadcast_to(np.repeat(np.arange(way), shots), supports.shape)
        if balanced:
            queries = rows(shots, ends)
            query_labels = np.broadcast_to(np.repeat(np.arange(way), self.n_query), queries.shape)
        else:
            queries, query_labels = self._random_queries(index, places, sizes, first)
        return (
            self._rows[supports],
            support_labels,
            self._rows[queries],
            query_labels,
            self.class_ids[classes].astype(np.int64),
        )

    def _random_queries(
        self,
        index: UInt64[np.ndarray, " task"],
        places: np.ndarray,
        sizes: np.ndarray,
        first: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw from the pool of all items of the task's classes that are not supports."""
        left = sizes.astype(np.int64) - self.shots  # (task, way)
        ends = np.cumsum(left, axis=1)
        bounds = ends[:, -1:].astype(np.uint64) - np.arange(self.n_query, dtype=np.uint64)
        pooled = distinct(integers(self.seed, f"{self.stream}/queries", index, bounds))
        labels = (pooled[:, :, None] >= ends[:, None, :]).sum(-1)  # (task, query)
        offset = np.take_along_axis(ends - left, labels, axis=1)
        place = pooled - offset
        for k in range(self.n_way):  # step over the supports of class k, lowest first
            for taken in np.sort(places[:, k, : self.shots[k]], axis=1).T:
                place += (labels == k) & (place >= taken[:, None])
        return place + np.take_along_axis(first, labels, axis=1), labels

    def _check_feasible(self) -> None:
        n_classes = len(self._sizes)
        if n_classes < self.n_way:
            remedy = f"Lower n_way to {n_classes}." if n_classes > 1 else "Add classes."
            raise ValueError(
                f"Expected at least {self.n_way} classes for {self.n_way}-way tasks, got "
                f"{n_classes}. {remedy}"
            )
        smallest = int(self._sizes.argmin())
        size, shot = int(self._sizes[smallest]), int(self.shots.max())
        if self.queries == "balanced":
            need, what = shot + self.n_query, f" with {self.n_query} queries"
            remedy = f"n_query to {size - shot}" if size > shot else "n_shot and n_query"
        else:
            need, what, remedy = shot, "", f"n_shot to {size}"
        if size < need:
            raise ValueError(
                f"A {shot}-shot episode{what} needs {need} items per class; class "
                f"{self.class_ids[smallest]} has {size}. Lower {remedy}, or leave the class out."
            )
        pool = int(np.sort(self._sizes)[: self.n_way].sum()) - int(self.shots.sum())
        if self.queries == "random" and pool < self.n_query:
            raise ValueError(
                f"{self.n_query} random queries need as many items beside the supports; the "
                f"smallest classes have {pool}. Lower n_query to {pool}."
            )


def distinct(draws: UInt64[np.ndarray, "row n"]) -> Int[np.ndarray, "row n"]:
    """An ordered sample without replacement from draws of 0..size-1, 0..size-2, and so on.

    Draw j is a rank among what is left; stepping over the values taken before it, lowest first,
    finds the value meant. All rows go together.
    """
    ranks = np.ascontiguousarray(draws.T, dtype=np.int32)  # (n, row)
    taken: list[np.ndarray] = []  # sorted within each row
    for value in ranks:  # becomes the value in place
        for lower in taken:
            value += value >= lower
        carry = value.copy()
        for i, lower in enumerate(taken):
            taken[i], carry = np.minimum(lower, carry), np.maximum(lower, carry)
        taken.append(carry)
    return np.asarray(ranks.T, dtype=np.int64)
