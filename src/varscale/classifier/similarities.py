"""Tasks drawn from base classes, as similarities under a metric."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.classifier.place import place_task
from varscale.classifier.prior import Prior
from varscale.data.mixed import MixedTasks
from varscale.learn.quadrature import Similarities
from varscale.model.rows import take_rows


def draw_similarities(
    prior: Prior,
    x: Float[Tensor, "item dim"],
    labels: Int[np.ndarray, " item"],
    names: Int[np.ndarray, " item"],
    seed: int,
    number: int,
) -> list[Similarities]:
    """Draw tasks of all shapes that some classes have items for, in stream `number` of a seed.

    Classes are numbers from 0, called `names` among those of other draws.
    """
    tasks = MixedTasks(
        labels, ways=(5, 10), shots=(1, 2, 3, 5, 10, 20), seed=seed, stream=f"fold{number}"
    )
    base_class = torch.zeros(int(labels.max()) + 1, dtype=torch.long)
    base_class[torch.from_numpy(labels)] = torch.from_numpy(names)
    drawn, table = [], prior.embed(x.double())
    for step in range(len(tasks)):
        rows = tasks.batch(step, 8)
        place = place_task(prior, take_rows(table, rows.support), rows.support_labels, rows.n_way)
        similarity = place.unit(take_rows(table, rows.query)) @ place.references.mT
        shot = rows.support.shape[1] // rows.n_way
        classes = base_class[rows.classes.gather(1, rows.query_labels)]
        drawn.append(Similarities(shot, similarity, rows.query_labels, classes, place.spread))
    return drawn


def join(drawn: list[Similarities]) -> list[Similarities]:
    """Join tasks of one shape, whatever fold they are of."""
    shapes: dict[tuple[int, ...], list[Similarities]] = {}
    for tasks in drawn:
        shapes.setdefault((tasks.shot, *tasks.similarity.shape[1:]), []).append(tasks)
    names = ("similarity", "labels", "classes", "factor")
    return [
        Similarities(shot, *(torch.cat([getattr(p, name) for p in parts]) for name in names))
        for (shot, *_), parts in shapes.items()
    ]
