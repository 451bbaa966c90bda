"""Scales without a posterior: given, or learned as one more weight of the model."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal

from varscale.scalers.base import SCALERS, Scaler, check_finite
from varscale.scalers.posterior import gaussian


@SCALERS.register("fixed")
class Fixed(Scaler):
    r"""A fixed scale, as a grid search would choose it.

    $q(\alpha) = \mathcal N(a, 0)$, a point.

    Args:
        alpha: The scale $a$: a number, or one number per dimension.

    Example:
        >>> Fixed(alpha=10.0)(torch.zeros(2, 64)).mean.tolist()
        [[10.0], [10.0]]
    """

    learned = False
    local = False
    loc: Tensor

    def __init__(self, *, alpha: float | Sequence[float] = 1.0) -> None:
        loc = torch.tensor(alpha, dtype=torch.float32).reshape(-1)
        super().__init__(size=len(loc))
        if not (loc.isfinite() & (loc > 0)).all():
            raise ValueError(f"Expected a finite alpha > 0, got {alpha!r}.")
        self.register_buffer("loc", loc)

    def forward(self, task: Float[Tensor, "*task dim"]) -> Normal:
        """The same point for every task."""
        loc = self.loc.expand(*task.shape[:-1], self.size)
        return gaussian(loc, torch.zeros_like(loc))

    def _settings(self) -> Iterator[str]:
        yield f"alpha={self.loc[0].item():g}" if self.size == 1 else f"size={self.size}"


@SCALERS.register("together")
class Together(Scaler):
    r"""A scale learned by the main optimiser like any other weight.

    $q(\alpha) = \mathcal N(\mu, 0)$ without a prior: "training together" of the paper's Table 5.

    Args:
        init: Initial value of $\mu$.
        size: Entries of the scale: 1, or the embedding size.
        lr: Learning rate in the main optimiser; that of the other weights when not given.

    Example:
        >>> Together(init=10.0)(torch.zeros(64)).mean
        tensor([10.], grad_fn=<ExpandBackward0>)
    """

    own_rate = False
    local = False

    def __init__(
        self,
        *,
        init: float = 100.0,
        size: int = 1,
        lr: float | None = None,
    ) -> None:
        super().__init__(size=size, lr=lr)
        check_finite(init=init)
        self.loc = nn.Parameter(torch.full((self.size,), float(init)))

    def forward(self, task: Float[Tensor, "*task dim"]) -> Normal:
        """The current point, for every task."""
        loc = self.loc.expand(*task.shape[:-1], self.size)
        return gaussian(loc, torch.zeros_like(loc))
