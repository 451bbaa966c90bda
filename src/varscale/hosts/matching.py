"""Matching networks, without contextual embeddings."""

from typing import Any, Literal

from jaxtyping import Float, Integer
from torch import Tensor, nn

from varscale.functional import class_logsumexp, unit
from varscale.hosts.base import HOSTS, Host


@HOSTS.register("matching")
class MatchingNetwork(Host):
    """Classify by attention over the supports, summed within classes (M9).

    With one shot and the cosine it equals the prototypical network.

    Args:
        backbone: Embedding network with an attribute `out_dim`.
        normalize: `each` normalises every embedding to unit length, `none` does not. If not given:
            `none` for the metrics `dot` and `norm`, else `each`.
        **host: Arguments of `Host`: metric (the cosine if not given), kappa, bn_pass,
            legacy_alpha_grad.
    """

    default_metric = "cosine"
    scaled_metric = "cosine"

    def __init__(
        self,
        backbone: nn.Module,
        *,
        normalize: Literal["none", "each"] | None = None,
        **host: Any,
    ) -> None:
        super().__init__(backbone, **host)
        self.normalize = self._normalization(normalize, ("each", "none"))

    def references(
        self,
        support: Float[Tensor, "task support dim"],
        labels: Integer[Tensor, "task support"],
        *,
        n_way: int,
    ) -> Float[Tensor, "task support dim"]:
        """The supports themselves."""
        return support if self.normalize == "none" else unit(support)

    def logits(
        self,
        query: Float[Tensor, "task query dim"],
        references: Float[Tensor, "task support dim"],
        labels: Integer[Tensor, "task support"],
        alpha: Float[Tensor, "*#batch #dim"] | float,
        *,
        n_way: int,
    ) -> Float[Tensor, "*batch query way"]:
        """Log of the attention that each class's supports receive."""
        query = query if self.normalize == "none" else unit(query)
        similarity = self.compare(query, references, alpha)  # (*batch, query, support)
        return class_logsumexp(similarity, labels, n_way)

    def extra_repr(self) -> str:
        """Settings, for `repr`."""
        return f"{super().extra_repr()}, normalize={self.normalize}"
