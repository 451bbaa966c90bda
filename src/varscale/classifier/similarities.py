"""Tasks as a metric sees them: similarities, and nothing else of the embeddings."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.frozen import MixedTasks
from varscale.learned_scale import Metric
from varscale.pooling import class_means


@dataclass(frozen=True, eq=False)
class Seen:
    """Tasks of one shape, as a metric sees them.

    Attributes:
        shot: Supports per class.
        similarity: Of queries and class means.
        labels: Class of each query in its task.
        classes: The same as a base class.
    """

    shot: int
    similarity: Float[Tensor, "task query way"]
    labels: Int[Tensor, "task query"]
    classes: Int[Tensor, "task query"]

    @property
    def own(self) -> Float[Tensor, "task query"]:
        """Similarity of a query and its own class."""
        return self.similarity.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)


def tasks_seen(
    metric: Metric, x: Tensor, labels: np.ndarray, names: np.ndarray, seed: int, number: int
) -> list[Seen]:
    """Tasks of all shapes that some classes have items for.

    Args:
        metric: Sees them.
        x: Embeddings.
        labels: Their classes, as numbers from 0.
        names: What to call those classes among others.
        seed: Seed of the tasks.
        number: Number of their stream.
    """
    tasks = MixedTasks(
        labels, ways=(5, 10), shots=(1, 2, 3, 5, 10, 20), seed=seed, stream=f"fold{number}"
    )
    base_class = torch.zeros(int(labels.max()) + 1, dtype=torch.long)
    base_class[torch.from_numpy(labels)] = torch.from_numpy(names)
    base_class = base_class.to(x.device, non_blocking=True)
    seen = []
    for step in range(len(tasks)):
        rows = tasks.batch(step, 8, x.device)
        centres = class_means(x[rows.support], rows.support_labels, rows.n_way)
        shot = rows.support.shape[1] // rows.n_way
        similarity = metric(x[rows.query], centres)
        classes = base_class[rows.classes.gather(1, rows.query_labels)]
        seen.append(Seen(shot, similarity, rows.query_labels, classes))
    return seen


def joined(seen: list[Seen]) -> list[Seen]:
    """Tasks of one shape together, whatever fold they are of."""
    shapes: dict[tuple[int, ...], list[Seen]] = {}
    for tasks in seen:
        shapes.setdefault((tasks.shot, *tasks.similarity.shape[1:]), []).append(tasks)
    return [
        Seen(
            shape[0],
            torch.cat([p.similarity for p in parts]),
            torch.cat([p.labels for p in parts]),
            torch.cat([p.classes for p in parts]),
        )
        for shape, parts in shapes.items()
    ]
