"""`ScaledModel`: a host and a scaler joined."""

import math
from functools import partial

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from varscale.core.episode import Episode
from varscale.core.labels import check_support
from varscale.core.precision import full_precision
from varscale.core.random import Ahead, normal
from varscale.functional import task_prototype
from varscale.hosts import Host
from varscale.model.head import Scale, class_scores, log_probabilities
from varscale.model.objective import Loss, Objective
from varscale.scalers import Posterior, Scaler


class ScaledModel(nn.Module):
    """A few-shot classifier whose metric has a learned scale.

    In training every task draws one scale. In evaluation the posterior mean is used, or the
    prediction is averaged over draws.

    Args:
        host: Turns an episode and a scale into logits.
        scaler: Gives the distribution of the scale.
        objective: The loss.
        shot_offset: Initial value of $b$ in the law $n / (n + b)$ by which the scale grows with a
            class's number of supports (M23); `None` for a scale that does not depend on it. Learn
            $b$ on tasks of mixed shots.

    Example:
        >>> from varscale import hosts, scalers, backbones
        >>> host = hosts.PrototypicalNetwork(backbones.Identity(2), metric="cosine")
        >>> model = ScaledModel(host, scalers.Fixed(alpha=10.0))
        >>> x = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        >>> episode = Episode(x, torch.tensor([[0, 1]]), x, torch.tensor([[0, 1]]), n_way=2)
        >>> [round(p, 4) for p in model(episode).exp()[0, 0].tolist()]
        [1.0, 0.0]
    """

    log_shot_offset: Tensor | None

    def __init__(
        self,
        host: Host,
        scaler: Scaler,
        objective: Objective | None = None,
        *,
        shot_offset: float | None = None,
    ) -> None:
        super().__init__()
        if scaler.dim not in (None, host.out_dim) or scaler.size not in (1, host.out_dim):
            raise ValueError(
                f"Expected a scaler for the host's {host.out_dim}-dimensional embeddings, got "
                f"{scaler}. Give it dim={host.out_dim}."
            )
        self.host = host
        self.scaler = scaler
        self.objective = Objective() if objective is None else objective
        if shot_offset is None:
            self.log_shot_offset = None
        elif not 0 < shot_offset < math.inf:
            raise ValueError(f"Expected shot_offset > 0, got {shot_offset!r}.")
        elif scaler.learned:
            self.log_shot_offset = nn.Parameter(torch.tensor(math.log(shot_offset)))
        else:
            self.register_buffer("log_shot_offset", torch.tensor(math.log(shot_offset)))
        self._noise = Ahead("alpha")

    def loss(self, episode: Episode, *, index: int, seed: int = 0) -> Loss:
        """The training loss, at one draw of the scale per task.

        Args:
            episode: Tasks number `index`, `index` + 1, ... of the training.
            index: Number of the first. Fixes the draw and the weight of the auxiliary loss.
            seed: Seed of the draws.
        """
        if episode.query_labels is None:
            raise ValueError("The loss needs the labels of the queries, got query_labels=None.")
        support, query = self.host.embed(episode)
        labels, numbers = episode.query_labels, torch.arange(index, index + episode.n_tasks)
        noise = self._noise(seed, index, episode.n_tasks, self.scaler.size)
        with full_precision(support.device):
            scale = self.scale(support, query)
            logits_at = partial(
                self._scores, scale, support, episode.support_labels, query, n_way=episode.n_way
            )
            alpha, penalty = self.scaler.sample(scale.q, noise), self.host.penalty()
            return self.objective(logits_at, labels, self.scaler, scale.q, alpha, numbers, penalty)

    def forward(
        self, episode: Episode, *, samples: int = 0, index: int = 0, seed: int = 0
    ) -> Float[Tensor, "task query way"]:
        r"""Log-probabilities of the queries' classes.

        Args:
            episode: Tasks number `index`, `index` + 1, ... of the evaluation.
            samples: 0 for the posterior mean of the scale; S for the average of the probabilities
                over S draws (M16).
            index: Number of the first task. Fixes the draws.
            seed: Seed of the draws.
        """
        support, query = self.host.embed(episode)
        return self.predict(
            support,
            episode.support_labels,
            query,
            n_way=episode.n_way,
            samples=samples,
            index=index,
            seed=seed,
            checked=True,
        )

    def predict(
        self,
        support: Float[Tensor, "task support dim"],
        labels: Integer[Tensor, "task support"],
        query: Float[Tensor, "task query dim"],
        *,
        n_way: int,
        samples: int = 0,
        index: int = 0,
        seed: int = 0,
        checked: bool = False,
    ) -> Float[Tensor, "task query way"]:
        """Log-probabilities of embedded queries; for the other arguments see `forward`.

        With `checked`, labels are known to be right and are not looked at.
        """
        if not checked:
            check_support(labels, n_way)
        if samples < 0:
            raise ValueError(f"Expected samples >= 0, got {samples}.")
        with full_precision(support.device):
            scale = self.scale(support, query)
            draws = None
            if samples:
                noise = normal(seed, "predict", index, len(support), samples * self.scaler.size)
                noise = noise.unflatten(1, (samples, -1)).movedim(1, 0)  # (samples, task, size)
                draws = self.scaler.sample(scale.q, noise)
            host = self.host
            references = host.references(support, labels, n_way=n_way)
            return log_probabilities(
                host, scale, query, references, labels, n_way=n_way, draws=draws
            )

    def _scores(
        self,
        scale: Scale,
        support: Tensor,
        labels: Tensor,
        query: Tensor,
        alpha: Tensor | float,
        n_way: int,
    ) -> Tensor:
        host = self.host
        references = host.references(support, labels, n_way=n_way)
        return class_scores(host, scale, query, references, labels, alpha, n_way=n_way)

    def scale(
        self, support: Float[Tensor, "task support dim"], query: Float[Tensor, "task query dim"]
    ) -> Scale:
        """The posterior of each task's scale, with the shot law."""
        return Scale(self.posterior(support, query), self.shot_offset)

    @property
    def shot_offset(self) -> Float[Tensor, ""] | None:
        """The $b$ of the shot law (M23); `None` without one."""
        log_offset = self.log_shot_offset
        return None if log_offset is None else log_offset.exp()

    def posterior(
        self, support: Float[Tensor, "task support dim"], query: Float[Tensor, "task query dim"]
    ) -> Posterior:
        """q(alpha | task) of embedded tasks."""
        scaler = self.scaler
        if scaler.local:
            task = task_prototype(support, query if self.transductive else None)
        else:
            task = support.select(-2, 0)  # for its shape
        q: Posterior = scaler(task)
        return q

    @property
    def transductive(self) -> bool:
        """Whether the answer to a query depends on the other queries of its task."""
        return self.scaler.task_prototype == "support+query"
