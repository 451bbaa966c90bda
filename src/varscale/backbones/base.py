"""Base class of backbones: a module that knows its embedding size."""

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from varscale.core.registry import Registry

BACKBONES: "Registry[Backbone]" = Registry("backbone", group="varscale.backbones")


class Backbone(nn.Module, ABC):
    """An embedding network from items to vectors.

    Attributes:
        out_dim: Embedding size M.
        in_shape: Shape of one item.
    """

    out_dim: int
    in_shape: tuple[int, ...]

    @abstractmethod
    def forward(self, items: Float[Tensor, "batch *item"]) -> Float[Tensor, "batch dim"]:
        """Embed a batch of items."""
