"""The scaled metric as a distance of pytorch-metric-learning, for any of its losses.

Needs the package `pytorch-metric-learning`.
"""

from typing import Any

import torch
from jaxtyping import Float
from pytorch_metric_learning.distances import BaseDistance
from torch import Tensor
from torch.distributions import Normal

from varscale.functional import dot_logits, squared_euclidean
from varscale.scalers import Scaler


class ScaledDistance(BaseDistance):  # type: ignore[misc]
    r"""A distance, or similarity, with a learned scale.

    In training mode every call draws one $\alpha$, as for one task; in evaluation it uses the
    mean. Add `penalty()` to the loss, and let the scaler `follow` your optimiser. A loss with a
    temperature of its own should have it at 1.

    Args:
        scaler: Any scaler; an amortised one sees the mean of the batch.
        similarity: The scaled inner product (of unit vectors: cosine, M6) instead of the scaled
            squared distance (M7).
        kappa: Factor of the squared distance.
        generator: Source of the draws; torch's own when not given.
        **base: Arguments of `BaseDistance`: `normalize_embeddings` and others.

    Example:
        >>> from varscale.scalers import Fixed
        >>> distance = ScaledDistance(Fixed(alpha=10.0), similarity=True)
        >>> distance(torch.eye(2)).tolist()
        [[10.0, 0.0], [0.0, 10.0]]
    """

    def __init__(
        self,
        scaler: Scaler,
        *,
        similarity: bool = False,
        kappa: float = 0.5,
        generator: torch.Generator | None = None,
        **base: Any,
    ) -> None:
        super().__init__(is_inverted=similarity, **base)
        self.scaler = scaler
        self.kappa = kappa
        self.generator = generator
        self.q: Normal | None = None

    def compute_mat(
        self, query_emb: Float[Tensor, "query dim"], ref_emb: Float[Tensor, "reference dim"]
    ) -> Float[Tensor, "query reference"]:
        """Scaled distances of all pairs."""
        alpha = self._draw(query_emb)
        if self.is_inverted:
            return dot_logits(query_emb, ref_emb, alpha)
        distance = squared_euclidean(query_emb, ref_emb, alpha)
        # Rounding alone makes it negative, unless an entry of alpha is.
        return self.kappa * distance.where((alpha < 0).any(), distance.clamp_min(0))

    def pairwise_distance(
        self, query_emb: Float[Tensor, "pair dim"], ref_emb: Float[Tensor, "pair dim"]
    ) -> Float[Tensor, " pair"]:
        """Scaled distances of corresponding rows."""
        alpha = self._draw(query_emb)
        if self.is_inverted:
            return (alpha * query_emb * ref_emb).sum(-1)
        return self.kappa * (alpha * (query_emb - ref_emb).square()).sum(-1)

    def penalty(self) -> Float[Tensor, ""]:
        """Weighted KL of the last call, against a likelihood summed over the batch."""
        if self.q is None:
            raise ValueError("The penalty is that of a call; compute the distances or loss first.")
        return self.scaler.penalty(self.q)

    def _draw(self, embeddings: Tensor) -> Tensor:
        self.q = self.scaler(embeddings.mean(0))
        if not self.training:
            return self.q.mean
        noise = torch.randn(self.scaler.size, generator=self.generator, device=embeddings.device)
        return self.scaler.sample(self.q, noise)
