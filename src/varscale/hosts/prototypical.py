"""Prototypical networks."""

from typing import Any, Literal, get_args

from jaxtyping import Float, Integer
from torch import Tensor, nn

from varscale.functional import class_means, unit
from varscale.hosts.base import HOSTS, Host

Normalization = Literal["prototype", "each_then_mean", "each_then_mean_unit", "none"]
"""When embeddings are normalised to unit length; the order matters for two or more shots.

- `prototype`: prototypes are means of raw embeddings, then normalised; queries are normalised.
  As in the released code.
- `each_then_mean`: every embedding is normalised, prototypes are their plain means.
- `each_then_mean_unit`: the same, and the means are normalised again.
- `none`: never.
"""


@HOSTS.register("pn")
class PrototypicalNetwork(Host):
    """Classify by the scaled distance to each class's mean embedding (M1, M4-M8).

    Args:
        backbone: Embedding network with an attribute `out_dim`.
        normalize: See `Normalization`. If not given: `none` for the metrics `dot` and `norm`, else
            `prototype`, as in all scaled methods.
        **host: Arguments of `Host`: metric, kappa, bn_pass, legacy_alpha_grad.
    """

    def __init__(
        self, backbone: nn.Module, *, normalize: Normalization | None = None, **host: Any
    ) -> None:
        super().__init__(backbone, **host)
        self.normalize = self._normalization(normalize, get_args(Normalization))

    def references(
        self,
        support: Float[Tensor, "task support dim"],
        labels: Integer[Tensor, "task support"],
        *,
        n_way: int,
    ) -> Float[Tensor, "task way dim"]:
        """Class means of the supports (M1)."""
        if self.normalize.startswith("each"):
            support = unit(support)
        centres = class_means(support, labels, n_way)
        return unit(centres) if self.normalize in ("prototype", "each_then_mean_unit") else centres

    def logits(
        self,
        query: Float[Tensor, "task query dim"],
        references: Float[Tensor, "task way dim"],
        labels: Integer[Tensor, "task support"],
        alpha: Float[Tensor, "*#batch #dim"] | float,
        *,
        n_way: int,
    ) -> Float[Tensor, "*batch query way"]:
        """Scaled similarity of queries and prototypes."""
        query = query if self.normalize == "none" else unit(query)
        return self.compare(query, references, alpha)

    def extra_repr(self) -> str:
        """Settings, for `repr`."""
        return f"{super().extra_repr()}, normalize={self.normalize}"
