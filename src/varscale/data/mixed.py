"""Tasks of mixed ways and shots, drawn from classes of unequal size."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int

from varscale.data.sampler import EpisodeRows, EpisodeSampler

WAYS, SHOTS, QUERIES = (5, 10, 20), (1, 2, 5, 10), 10
"""Classes of a training task, supports and queries of a class, as far as the data allow."""


class MixedTasks:
    """Tasks of several ways and shots in turn, as far as classes of unequal size allow.

    A class takes part in the tasks that it has enough items for; there are tasks of n shots if at
    least two classes have more than n items.

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
            typical = min(np.median(fit), np.sort(fit)[-2])  # at least two classes have that many
            queries = int(np.clip(typical - shot, 1, n_query))
            rows = np.flatnonzero(np.isin(labels, classes[sizes >= shot + queries]))
            n_classes = int((sizes >= shot + queries).sum())
            for way in dict.fromkeys(min(way, n_classes) for way in ways):
                name = f"{stream}/{way}w{shot}s"
                sampler = EpisodeSampler(labels[rows], way, shot, queries, seed=seed, stream=name)
                self.parts.append((rows, sampler))

    def __len__(self) -> int:
        """Number of shapes; 0 if no task can be drawn."""
        return len(self.parts)

    def batch(self, step: int, tasks: int, device: torch.device | None = None) -> EpisodeRows:
        """Tasks of one shape, on a device; the shapes take turns."""
        turn, place = divmod(step, len(self.parts))
        rows, sampler = self.parts[place]
        drawn = sampler.batch(turn * tasks, tasks)
        table = torch.from_numpy(rows)
        found = {**vars(drawn), "support": table[drawn.support], "query": table[drawn.query]}
        return EpisodeRows(**{k: x.to(device, non_blocking=True) for k, x in found.items()})
