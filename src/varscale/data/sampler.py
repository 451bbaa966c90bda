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

from varscale.core.random import Words, integers, span
from varscale.core.registry import unknown
from varscale.data.lehmer import distinct

Queries = Literal["balanced", "random"]
"""How queries are drawn.

- `balanced`: `n_query` of each class.
- `random`: `n_query` per task, from all items of its classes that are not supports, as TADAM does.
"""

_CHUNK = 512  # episodes worked on at once: their arrays stay in the cache


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
        """Select some of the tasks."""
        return EpisodeRows(**{name: rows[tasks] for name, rows in vars(self).items()})


class EpisodeSampler:
    """Draw tasks from labelled items: `n_way` classes, then supports and queries of each.

    Episode i depends only on (seed, stream, i) and the labels, not on earlier draws or on how many
    are drawn at once. All draws are without replacement and exactly uniform.

    Args:
        labels: Class of every row, as integers.
        n_way: Classes per task.
        n_shot: Supports per class, or a list with one number for each class of the task.
        n_query: Number of queries; see `queries`.
        seed: Seed.
        stream: Name of the stream; streams of one seed are unrelated.
        queries: See `Queries`.
        class_names: Name of each label, for messages.

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
        class_names: Sequence[str] | None = None,
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
        self._check_feasible(class_names)
        self._prepare()

    __iter__ = None  # a loop over it would never end

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
        if count <= _CHUNK:
            fields = self._draw(index)
        else:
            parts = [self._draw(index[i : i + _CHUNK]) for i in range(0, count, _CHUNK)]
            fields = tuple(np.concatenate(field) for field in zip(*parts, strict=True))
        return EpisodeRows(*map(torch.from_numpy, fields))

    def _prepare(self) -> None:
        """Compute once what all episodes share."""
        way, shots, balanced = self.n_way, self.shots, self.queries == "balanced"
        ends = shots + self.n_query * balanced
        self._most = int(ends.max())  # draws for every class, even if it needs fewer
        self._largest = int(self._sizes.max())
        self._class_bounds = np.uint64(len(self._sizes)) - np.arange(way, dtype=np.uint64)[None]
        self._steps = np.arange(self._most, dtype=np.uint64)[:, None]
        self._streams = [f"{self.stream}/{what}" for what in ("classes", "items", "queries")]
        sizes = (way, way * self._most) if balanced else (way, way * self._most, self.n_query)
        self._words = Words(self.seed, dict(zip(self._streams, sizes, strict=False)))

        def flat(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Positions of draws start..stop of each class in (draw, class), and their classes."""
            at = [np.arange(starts[k], stops[k]) * way + k for k in range(way)]
            return np.concatenate(at), np.repeat(np.arange(way), stops - starts)[None]

        self._support_at, self._support_labels = flat(np.zeros_like(shots), shots)
        self._query_at, self._query_labels = flat(shots, ends)

    def _draw(self, index: UInt64[np.ndarray, " task"]) -> tuple[np.ndarray, ...]:
        # Tasks are the last axis of all arrays but the results: numpy's inner loops run along it.
        n_tasks, way, most = len(index), self.n_way, self._most
        drawn = self._words(index)
        ranks = integers(self.seed, self._streams[0], index, self._class_bounds, drawn[0])
        classes = distinct(ranks.T, len(self._sizes))  # (way, task)
        sizes = self._sizes.take(classes)
        bounds = (sizes[:, None] - self._steps).reshape(way * most, n_tasks)
        ranks = integers(self.seed, self._streams[1], index, bounds.T, drawn[1])
        ranks = ranks.T.reshape(way, most, n_tasks).swapaxes(0, 1).reshape(most, way * n_tasks)
        places = distinct(ranks, self._largest).reshape(most, way, n_tasks)
        first = self._first.take(classes)
        items = (places + first).reshape(most * way, n_tasks)
        if self.queries == "balanced":
            queries, query_labels = items[self._query_at], self._query_labels.repeat(n_tasks, 0)
        else:
            queries, query_labels = self._random_queries(index, drawn[2], places, sizes, first)
        return (
            self._rows.take(items[self._support_at].T),
            self._support_labels.repeat(n_tasks, 0),
            self._rows.take(queries.T),
            query_labels,
            self.class_ids.take(classes.T).astype(np.int64),
        )

    def _random_queries(
        self,
        index: UInt64[np.ndarray, " task"],
        drawn: UInt64[np.ndarray, "task query"],
        places: Int[np.ndarray, "shot way task"],
        sizes: UInt64[np.ndarray, "way task"],
        first: Int[np.ndarray, "way task"],
    ) -> tuple[Int[np.ndarray, "query task"], Int[np.ndarray, "task query"]]:
        """Draw from the pool of all items of the task's classes that are not supports."""
        left = sizes.astype(np.int64) - self.shots[:, None]  # (way, task)
        ends = np.cumsum(left, axis=0)
        bounds = ends[-1].astype(np.uint64) - np.arange(self.n_query, dtype=np.uint64)[:, None]
        ranks = integers(self.seed, self._streams[2], index, bounds.T, drawn)
        pooled = distinct(ranks.T, len(self._rows))  # (query, task)
        labels = (pooled[:, None] >= ends).sum(1)
        own = labels * len(index) + np.arange(len(index))  # where (way, task) has the query's class
        place = pooled - (ends - left).take(own)
        # Step over the supports of the class, lowest first: over the j-th if `place` reaches it
        # after j steps. A class with fewer supports than others has unreachable ones instead.
        order = np.arange(self._most)[:, None, None]
        taken = np.where(order < self.shots[:, None], places, len(self._rows) + self._most)
        reached = np.sort(taken, axis=0) - order
        steps = sum(place >= shot.take(own) for shot in reached)
        return place + steps + first.take(own), labels.T.copy()

    def _check_feasible(self, class_names: Sequence[str] | None) -> None:
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
            label = self.class_ids[smallest]
            name = label if class_names is None else repr(class_names[label])
            raise ValueError(
                f"A {shot}-shot episode{what} needs {need} items per class; class {name} has "
                f"{size}. Lower {remedy}, or leave the class out."
            )
        pool = int(np.sort(self._sizes)[: self.n_way].sum()) - int(self.shots.sum())
        if self.queries == "random" and pool < self.n_query:
            raise ValueError(
                f"{self.n_query} random queries need as many items besides the supports; the "
                f"smallest classes have {pool}. Lower n_query to {pool}."
            )
