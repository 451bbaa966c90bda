"""The head: embeddings, labels and a posterior of the scale in, log-probabilities out.

Training, evaluation and the export of models call it. The classifier of embeddings has a scale for
each query, so it uses `functional.query_logits` instead.
"""

from dataclasses import dataclass

from jaxtyping import Float, Integer
from torch import Tensor

from varscale.core.labels import class_counts
from varscale.functional import log_predictive, log_softmax, shot_factor, temper
from varscale.hosts import Host
from varscale.scalers import Posterior


@dataclass(frozen=True, eq=False)
class Scale:
    """The posterior of a scale, and the laws that the scale follows.

    Attributes:
        q: Distribution of alpha, of batch shape (1 or dim) or (task, 1 or dim).
        shot_offset: b of the law n / (n + b) by which the scale grows with a class's number n of
            supports (M23); `None` if shots do not matter.
    """

    q: Posterior
    shot_offset: Float[Tensor, ""] | float | None = None

    def at_shots(
        self, logits: Float[Tensor, "*batch query way"], count: Float[Tensor, "*#batch #way"]
    ) -> Float[Tensor, "*batch query way"]:
        """Class scores at the scale of each class's number of supports (M23, M24)."""
        if self.shot_offset is None:
            return logits
        factor = shot_factor(count, self.shot_offset).unsqueeze(-2)
        return factor * logits if count.shape[-1] == 1 else temper(logits, factor)


def class_scores(
    host: Host,
    scale: Scale,
    query: Float[Tensor, "task query dim"],
    references: Float[Tensor, "task reference dim"],
    labels: Integer[Tensor, "task support"],
    alpha: Float[Tensor, "*#batch #dim"] | float,
    *,
    n_way: int,
    count: Integer[Tensor, "*#task way"] | None = None,
) -> Float[Tensor, "*batch query way"]:
    """Logits of the queries at a value of alpha, under the laws of the scale.

    Args:
        host: Compares queries with references.
        scale: Whose laws apply.
        query: Embedded queries.
        references: What `host.references` made of the supports.
        labels: Classes of the supports.
        alpha: A value of the scale; leading axes are draws.
        n_way: Classes per task.
        count: Supports of each class; counted from the labels when not given.
    """
    logits = host.logits(query, references, labels, alpha, n_way=n_way)
    if scale.shot_offset is None:
        return logits
    count = class_counts(labels, n_way) if count is None else count
    return scale.at_shots(logits, count.to(logits))


def log_probabilities(
    host: Host,
    scale: Scale,
    query: Float[Tensor, "task query dim"],
    references: Float[Tensor, "task reference dim"],
    labels: Integer[Tensor, "task support"],
    *,
    n_way: int,
    count: Integer[Tensor, "*#task way"] | None = None,
    draws: Float[Tensor, "samples task size"] | None = None,
) -> Float[Tensor, "task query way"]:
    """Log-probabilities of the queries' classes, at the mean of alpha or averaged over draws (M16).

    For the other arguments see `class_scores`.
    """
    alpha = scale.q.mean if draws is None else draws
    logits = class_scores(host, scale, query, references, labels, alpha, n_way=n_way, count=count)
    return log_softmax(logits) if draws is None else log_predictive(logits)
