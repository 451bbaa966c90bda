"""Prototypical networks."""

from typing import Any, Literal, get_args

from jaxtyping import Float, Integer
from torch import Tensor, nn

from varscale.functional import unit
from varscale.hosts.base import HOSTS, Host
from varscale.pooling import class_means

Normalization = Literal["prototype", "each_then_mean", "each_then_mean_unit", "none"]
"""When embeddings are brought to unit length; the order matters for two or more shots.

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
        normalize: See `Normalization`. When not given: `none` for the metrics `dot` and `norm`,
            else `prototype`, as all scaled methods have it.
        **host: Arguments of `Host`: metric, kappa, bn_pass, legacy_alpha_grad.
    """

    def __init__(
        self, backbone: nn.Module, *, normalize: Normalization | None = None, **host: Any
    ) -> None:
        super().__init__(backbone, **host)
        self.normalize = self._normalization(normalize, get_args(Normalization))

    def logits(
        self,
        support: Float[Tensor, "task support dim"],
        labels: Integer[Tensor, "task support"],
        query: Float[Tensor, "task query dim"],
        alpha: Float[Tensor, "*#batch #dim"] | float,
        *,
        n_way: int,
    ) -> Float[Tensor, "*batch query way"]:
        """Scaled similarity of queries and prototypes."""
        if self.normalize.startswith("each"):
            support = unit(support)
        centres = class_means(support, labels, n_way)  # (task, way, dim)
        if self.normalize in ("prototype", "each_then_mean_unit"):
            centres = unit(centres)
        if self.normalize != "none":
            query = unit(query)
        return self.compare(query, centres, alpha)

    def extra_repr(self) -> str:
        """Settings, for `repr`."""
        return f"{super().extra_repr()}, normalize={self.normalize}"
