"""A shared vector of scales, with a low-rank adjustment for each task."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from varscale.functional import unit
from varscale.scalers.base import SCALERS
from varscale.scalers.posterior import Posterior
from varscale.scalers.stochastic import DSVS


@SCALERS.register("d-avs-low-rank")
class LowRankDAVS(DSVS):
    r"""D-AVS as hierarchical D-SVS plus a low-rank adjustment for each task (M27).

    $\log \alpha_i \sim \mathcal N(\mu + U V \hat C_i, \operatorname{diag} \sigma^2)$ with $C_i$ the
    mean of the task's supports, $V$ of shape (rank, M) and $U$ of shape (M, rank), under the
    hierarchical prior (M26). It starts as D-SVS, and stays there if tasks tell nothing more. A
    query never sees another: it is not transductive. Every task has a scale of its own, so the
    exact bound weighs its KL by 1.

    Args:
        dim: Embedding size $M$.
        rank: Directions in which tasks may differ.
        **d_svs: Arguments of `DSVS`, but the family.

    Example:
        >>> import torch
        >>> LowRankDAVS(dim=8, rank=2)(torch.zeros(3, 8)).mean.shape
        torch.Size([3, 8])
    """

    local = True

    def __init__(self, dim: int, *, rank: int = 8, **d_svs: Any) -> None:
        if d_svs.setdefault("family", "hierarchical") != "hierarchical":
            raise ValueError(f"Expected the hierarchical family, got {d_svs['family']!r}.")
        if rank < 1:
            raise ValueError(f"Expected rank >= 1, got {rank}.")
        super().__init__(dim, **d_svs)
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim, bias=False)
        nn.init.normal_(self.up.weight, std=0.01)

    def forward(self, task: Float[Tensor, "*task dim"]) -> Posterior:
        """The shared posterior, adjusted by the mean of the task's supports."""
        direction = unit(task.to(self.loc.dtype))
        return self.posterior_at(self.loc + self.up(self.down(direction)))
