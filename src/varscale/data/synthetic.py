"""Gaussian tasks whose best scale is known."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from varscale.core.episode import Episode
from varscale.core.random import normal


@dataclass(frozen=True, eq=False)
class GaussianTasks:
    r"""Tasks of Gaussian classes; task i is a pure function of (seed, stream, i).

    A class has mean $m \sim \mathcal N(0, \operatorname{diag} \tau^2)$, an item of it is
    $x \sim \mathcal N(m, \operatorname{diag} \sigma^2)$. Given $N$ supports with mean $c$, and
    $\tau \gg \sigma$, an item is $\mathcal N(c, \sigma^2 (1 + 1/N))$, so the scale that the
    unnormalised Euclidean head with kappa = 1/2 should learn is `best_alpha` (M17).

    Args:
        spread: $\tau$ of each dimension: how far classes lie apart.
        noise: $\sigma$ of each dimension: how far items of one class lie apart.
        n_way: Classes per task.
        n_shot: Supports per class.
        n_query: Queries per class.
        seed: Seed.
        stream: Name of the stream; give training and test different ones.
        offset: Number added to every item. Embeddings of ReLU networks are not centred either.

    Example:
        >>> tasks = GaussianTasks(spread=torch.ones(8), noise=torch.ones(8))
        >>> tasks.batch(0, 4)
        Episode(4 tasks, 5-way, 5 supports, 75 queries, item 8)
    """

    spread: Float[Tensor, " dim"]
    noise: Float[Tensor, " dim"]
    n_way: int = 5
    n_shot: int = 1
    n_query: int = 15
    seed: int = 0
    stream: str = "train"
    offset: float = 0.0

    def __post_init__(self) -> None:
        for name in ("n_shot", "n_query", "n_way"):
            if getattr(self, name) < 1:
                raise ValueError(f"Expected {name} >= 1, got {getattr(self, name)}.")
        if self.spread.shape != self.noise.shape or not (self.noise > 0).all():
            raise ValueError("Expected spread and noise of the same length, and noise > 0.")

    def batch(self, start: int, count: int) -> Episode:
        """Tasks number start..start+count-1."""
        dim, n_items = len(self.noise), self.n_shot + self.n_query
        draws = normal(self.seed, self.stream, start, count, (1 + n_items) * self.n_way * dim)
        draws = draws.float().view(count, 1 + n_items, self.n_way, dim)
        items = draws[:, :1] * self.spread + draws[:, 1:] * self.noise + self.offset
        support, query = items.tensor_split([self.n_shot], dim=1)  # (task, n, way, dim)
        labels = torch.arange(self.n_way).expand(count, n_items, -1)
        return Episode(
            support.flatten(1, 2),
            labels[:, : self.n_shot].flatten(1),
            query.flatten(1, 2),
            labels[:, self.n_shot :].flatten(1),
            n_way=self.n_way,
        )

    @property
    def best_alpha(self) -> Float[Tensor, " dim"]:
        r"""$1 / (\sigma^2 (1 + 1/N))$, for classes far apart."""
        return 1 / (self.noise.square() * (1 + 1 / self.n_shot))
