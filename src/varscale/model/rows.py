"""Tasks that are rows of a table of embeddings."""

from jaxtyping import Float, Int
from torch import Tensor

from varscale.core.episode import Episode
from varscale.data import EpisodeRows
from varscale.model.scaled import ScaledModel


def episode_of(table: Float[Tensor, "item dim"], rows: EpisodeRows) -> Episode:
    """Gather tasks from a table as an episode, on the table's device; nothing is checked."""
    return Episode.trust(
        support=take_rows(table, rows.support),
        support_labels=rows.support_labels.to(table.device, non_blocking=True),
        query=take_rows(table, rows.query),
        query_labels=rows.query_labels.to(table.device, non_blocking=True),
        n_way=rows.n_way,
    )


def predict_rows(
    model: ScaledModel,
    table: Float[Tensor, "item dim"],
    rows: EpisodeRows,
    *,
    samples: int = 0,
    index: int = 0,
    seed: int = 0,
) -> Float[Tensor, "task query way"]:
    """Predict log-probabilities of the tasks' queries, on the table's device."""
    return model.predict(
        take_rows(table, rows.support),
        rows.support_labels.to(table.device, non_blocking=True),
        take_rows(table, rows.query),
        n_way=rows.n_way,
        samples=samples,
        index=index,
        seed=seed,
        checked=True,
    )


def take_rows(
    table: Float[Tensor, "item dim"], rows: Int[Tensor, "task n"]
) -> Float[Tensor, "task n dim"]:
    """Take rows of a table, by tasks."""
    taken = table.index_select(0, rows.flatten().to(table.device, non_blocking=True))
    return taken.view(*rows.shape, -1)
