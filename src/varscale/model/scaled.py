"""Host and scaler, joined."""

from functools import partial

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.optim import Optimizer

from varscale.episode import Episode
from varscale.functional import log_predictive, log_softmax, task_prototype
from varscale.hosts import Host
from varscale.labels import check_support
from varscale.objective import Loss, Objective
from varscale.optimization import decaying, weights_optimizer
from varscale.precision import full_precision
from varscale.random import Ahead, normal
from varscale.scalers import Posterior, Scaler


class ScaledModel(nn.Module):
    """A few-shot classifier whose metric has a learned scale.

    In training every task draws one scale. In evaluation the posterior mean is used, or the
    prediction is averaged over draws.

    Args:
        host: Turns an episode and a scale into logits.
        scaler: Gives the distribution of the scale.
        objective: The loss.

    Example:
        >>> from varscale import hosts, scalers, backbones
        >>> host = hosts.PrototypicalNetwork(backbones.Identity(2), metric="cosine")
        >>> model = ScaledModel(host, scalers.Fixed(alpha=10.0))
        >>> x = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        >>> episode = Episode(x, torch.tensor([[0, 1]]), x, torch.tensor([[0, 1]]), n_way=2)
        >>> [round(p, 4) for p in model(episode).exp()[0, 0].tolist()]
        [1.0, 0.0]
    """

    def __init__(self, host: Host, scaler: Scaler, objective: Objective | None = None) -> None:
        super().__init__()
        if scaler.dim not in (None, host.out_dim) or scaler.size not in (1, host.out_dim):
            raise ValueError(
                f"Expected a scaler for the host's {host.out_dim}-dimensional embeddings, got "
                f"{scaler}. Give it dim={host.out_dim}."
            )
        self.host = host
        self.scaler = scaler
        self.objective = Objective() if objective is None else objective
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
        logits_at = partial(
            self.logits, support, episode.support_labels, query, n_way=episode.n_way
        )
        with full_precision(support.device):
            q = self.posterior(support, query)
            alpha, penalty = self.scaler.sample(q, noise), self.host.penalty()
            return self.objective(logits_at, labels, self.scaler, q, alpha, numbers, penalty)

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

        `checked` says that the labels are known to be right: then no value is looked at.
        """
        if not checked:
            check_support(labels, n_way)
        if samples < 0:
            raise ValueError(f"Expected samples >= 0, got {samples}.")
        with full_precision(support.device):
            q = self.posterior(support, query)
            if not samples:
                return log_softmax(self.logits(support, labels, query, q.mean, n_way=n_way))
            noise = normal(seed, "predict", index, len(support), samples * self.scaler.size)
            noise = noise.unflatten(1, (samples, -1)).movedim(1, 0)  # (samples, task, size)
            alpha = self.scaler.sample(q, noise)
            return log_predictive(self.logits(support, labels, query, alpha, n_way=n_way))

    def logits(
        self,
        support: Float[Tensor, "task support dim"],
        labels: Integer[Tensor, "task support"],
        query: Float[Tensor, "task query dim"],
        alpha: Float[Tensor, "*#batch #dim"] | float,
        *,
        n_way: int,
    ) -> Float[Tensor, "*batch query way"]:
        """The host's class scores at a scale, which grows with the shots if the scaler says so."""
        logits = self.host.logits(support, labels, query, alpha, n_way=n_way)
        return self.scaler.at_shots(logits, labels)

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

    def optimizers(
        self,
        *,
        queries_per_task: int,
        lr: float = 1e-3,
        algorithm: str = "adam",
        momentum: float = 0.9,
        weight_decay: float = 0.0,
    ) -> list[Optimizer]:
        """One optimiser for the weights, one for a scaler that has a rate of its own.

        Both take their gradients from the same backward pass of `Loss.total`. Either is left out
        when it has nothing to learn.

        Args:
            queries_per_task: Queries per task, over all classes.
            lr: Learning rate of the weights.
            algorithm: `adam` or `sgd`.
            momentum: Of `sgd`.
            weight_decay: Of the host's convolutions and matrices; all else has none.
        """
        groups = [*decaying(self.host.parameters(), weight_decay), *self.scaler.param_groups()]
        weights = weights_optimizer(groups, lr=lr, algorithm=algorithm, momentum=momentum)
        optimizers = [] if weights is None else [weights]
        if weights is not None and not self.scaler.steps_itself:
            self.scaler.project_after(weights)
        if self.scaler.steps_itself and self.scaler.posterior_parameters():
            optimizers.append(self.scaler.optimizer(self.objective.scaler_factor(queries_per_task)))
        return optimizers
