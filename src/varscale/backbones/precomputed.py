"""Backbones for precomputed embeddings."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from varscale.backbones.base import BACKBONES, Backbone


@BACKBONES.register("identity")
class Identity(Backbone):
    """Return precomputed embeddings unchanged.

    Args:
        dim: Embedding size.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim < 1:
            raise ValueError(f"Expected an embedding size dim >= 1, got {dim}.")
        self.out_dim = dim
        self.in_shape = (dim,)

    def forward(self, items: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """Return the items."""
        return items


@BACKBONES.register("linear")
class Linear(Backbone):
    """Map precomputed embeddings linearly, initially by the identity.

    Args:
        dim: Size of the given embeddings.
        out_dim: Size of the mapped embeddings; `dim` if not given.
        bias: Add a bias, initially 0.
    """

    def __init__(self, dim: int, *, out_dim: int | None = None, bias: bool = False) -> None:
        super().__init__()
        self.out_dim = dim if out_dim is None else out_dim
        self.in_shape = (dim,)
        self.map = nn.Linear(dim, self.out_dim, bias=bias)
        with torch.no_grad():
            nn.init.eye_(self.map.weight)
            if bias:
                self.map.bias.zero_()

    def forward(self, items: Float[Tensor, "batch item"]) -> Float[Tensor, "batch dim"]:
        """Map the embeddings."""
        return F.linear(items.to(self.map.weight.dtype), self.map.weight, self.map.bias)
