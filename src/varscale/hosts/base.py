"""Base class of hosts: a metric-based classifier that takes alpha as an argument."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from varscale.core.episode import Episode
from varscale.core.registry import Registry, unknown
from varscale.core.tensors import is_readable
from varscale.functional import Condition, center, dot_logits, euclidean_logits, norm_logits

HOSTS: "Registry[Host]" = Registry("host", group="varscale.hosts")

LARGEST = 1e18
"""Upper bound of float32 embeddings: the squares of larger numbers overflow."""

Metric = Literal["euclidean", "cosine", "dot", "norm"]
"""How an embedding is compared with a reference.

- `euclidean`: squared Euclidean distance with the factor kappa (M4).
- `cosine`: inner product of unit vectors (M6).
- `dot`: inner product of embeddings as they are (M5); the released code's unscaled "cosine".
- `norm`: unsquared Euclidean distance (M8), as in TADAM.
"""

BatchNormPass = Literal["separate", "joint"]
"""Whether supports and queries share their batch statistics in training.

- `separate`: one pass for supports and one for queries, as in the released code.
- `joint`: one pass for both, as in the original prototypical network.
"""


class Host(nn.Module, ABC):
    r"""Turn an episode and a value of $\alpha$ into logits.

    A member implements `references` and `logits`.

    Args:
        backbone: Embedding network with an attribute `out_dim`.
        metric: See `Metric`; `default_metric` if not given.
        kappa: Factor of the squared Euclidean distance: 1/2 as in the released code, 1 as in the
            paper's text and for the unscaled prototypical network.
        bn_pass: See `BatchNormPass`.
        legacy_alpha_grad: Give $\alpha$ the gradient of the released code's Euclidean runs, which
            lacks the factor kappa and so doubles the influence of the likelihood. Wrong; use it
            only for reproduction.
    """

    default_metric: ClassVar[Metric] = "euclidean"

    scaled_metric: ClassVar[Metric] = "euclidean"
    """Metric that `create` chooses with a scaler."""

    default_scale: ClassVar[float] = 1.0
    """Fixed scale that `create` chooses without a scaler."""

    conditioned: ClassVar[bool] = False
    """Whether the embedding of an item depends on its task; such a member overrides `embed`."""

    def __init__(
        self,
        backbone: nn.Module,
        *,
        metric: Metric | None = None,
        kappa: float = 0.5,
        bn_pass: BatchNormPass = "separate",
        legacy_alpha_grad: bool = False,
    ) -> None:
        super().__init__()
        metric = self.default_metric if metric is None else metric
        if metric not in get_args(Metric):
            raise unknown("metric", metric, get_args(Metric))
        if bn_pass not in get_args(BatchNormPass):
            raise unknown("bn_pass", bn_pass, get_args(BatchNormPass))
        if not 0 < kappa < float("inf"):
            raise ValueError(f"Expected kappa > 0, got {kappa!r}.")
        out_dim = getattr(backbone, "out_dim", None)
        if not isinstance(out_dim, int):
            raise ValueError(
                f"Expected a backbone with an integer out_dim, its embedding size, got "
                f"{type(backbone).__name__} with {out_dim!r}. Set backbone.out_dim."
            )
        self.backbone = backbone
        self.out_dim = out_dim
        self.metric = metric
        self.kappa = kappa
        self.bn_pass = bn_pass
        self.legacy_alpha_grad = legacy_alpha_grad
        self.normalize = "none"  # members that normalise embeddings set it

    def embed(
        self, episode: Episode
    ) -> tuple[Float[Tensor, "task support dim"], Float[Tensor, "task query dim"]]:
        """Embed supports and queries, all tasks together."""
        return self.embed_both(episode)

    def embed_both(
        self, episode: Episode, condition: Condition | None = None
    ) -> tuple[Float[Tensor, "task support dim"], Float[Tensor, "task query dim"]]:
        """Embed supports and queries, in one backbone pass or two; see `BatchNormPass`."""
        if self.bn_pass == "joint":
            together = torch.cat((episode.support, episode.query), dim=1)
            n_support = episode.support.shape[1]
            support, query = self.embed_items(together, condition).tensor_split([n_support], dim=1)
        else:
            support = self.embed_items(episode.support, condition)
            query = self.embed_items(episode.query, condition)
        return support, query

    def embed_items(
        self, items: Float[Tensor, "task n *item"], condition: Condition | None = None
    ) -> Float[Tensor, "task n dim"]:
        """Embed items with the backbone, under the condition of their tasks if there is one."""
        expected = getattr(self.backbone, "in_shape", None)
        if expected is not None and tuple(items.shape[2:]) != expected:
            raise ValueError(
                f"Expected items of shape {expected} for this backbone, got "
                f"{tuple(items.shape[2:])}. Resize the items, or build another backbone."
            )
        n_items = items.shape[0] * items.shape[1]
        if n_items == 0:  # batch norm does not accept an empty batch
            return items.new_zeros(*items.shape[:2], self.out_dim)
        weight = next(self.backbone.parameters(), None)
        flat = items.flatten(0, 1) if weight is None else items.flatten(0, 1).to(weight.dtype)
        embeddings: Tensor = (
            self.backbone(flat) if condition is None else self.backbone(flat, condition)
        )
        if embeddings.shape != (n_items, self.out_dim):
            raise ValueError(
                f"Expected embeddings of shape {(n_items, self.out_dim)} from the backbone, got "
                f"{tuple(embeddings.shape)}. Is its out_dim right?"
            )
        extremes = embeddings.detach().aminmax() if is_readable(embeddings) else ()
        if not all(x.isfinite() for x in extremes):
            raise ValueError(
                "Expected finite embeddings, got NaN or infinity from the backbone. Its weights "
                "have diverged: return to an earlier checkpoint, with a lower learning rate."
            )
        if not all(x.abs() < LARGEST or x.dtype == torch.float64 for x in extremes):
            raise ValueError(
                f"Expected embeddings below {LARGEST:g}, whose squares fit into float32, got "
                f"{max(x.abs().item() for x in extremes):.3g}. Make them smaller, or use float64."
            )
        if weight is not None:  # half precision is for the backbone only
            embeddings = embeddings.to(torch.promote_types(embeddings.dtype, weight.dtype))
        return embeddings.view(*items.shape[:2], self.out_dim)

    @abstractmethod
    def references(
        self,
        support: Float[Tensor, "task support dim"],
        labels: Integer[Tensor, "task support"],
        *,
        n_way: int,
    ) -> Float[Tensor, "task reference dim"]:
        """Vectors to compare queries with, such as class means or the supports themselves."""

    @abstractmethod
    def logits(
        self,
        query: Float[Tensor, "task query dim"],
        references: Float[Tensor, "task reference dim"],
        labels: Integer[Tensor, "task support"],
        alpha: Float[Tensor, "*#batch #dim"] | float,
        *,
        n_way: int,
    ) -> Float[Tensor, "*batch query way"]:
        """Class scores of embedded queries at a value of alpha; their softmax is p(y | x).

        Args:
            query: Embedded queries.
            references: Result of `references`.
            labels: Classes of the supports.
            alpha: The scale; leading axes are draws.
            n_way: Classes per task.
        """

    def penalty(self) -> Float[Tensor, ""]:
        """Penalty on the host's own weights, added to the loss."""
        weight = next(self.parameters(), torch.empty(0))
        return weight.new_zeros(())

    def compare(
        self,
        query: Float[Tensor, "*#task query dim"],
        reference: Float[Tensor, "*#task way dim"],
        alpha: Float[Tensor, "*#task #dim"] | float,
    ) -> Float[Tensor, "*task query way"]:
        """Scaled similarity of queries and references, both already normalised if need be."""
        if self.metric == "euclidean":
            if self.legacy_alpha_grad and isinstance(alpha, Tensor):
                alpha = alpha.detach() + (alpha - alpha.detach()) / self.kappa
            if self.normalize == "none":
                query, reference = center(query, reference)
            return euclidean_logits(query, reference, alpha, kappa=self.kappa)
        if self.metric == "norm":
            return norm_logits(query, reference, alpha)
        return dot_logits(query, reference, alpha)

    def _normalization(self, normalize: str | None, known: Sequence[str]) -> str:
        """Check a requested normalisation, or choose the default: the first known, or `none`."""
        if normalize is None:
            return "none" if self.metric in ("dot", "norm") else known[0]
        if normalize not in known:
            raise unknown("normalize", normalize, known)
        if self.metric == "cosine" and normalize == "none":
            raise ValueError(
                'The cosine needs normalised embeddings, got normalize="none". '
                'For the raw inner product use metric="dot".'
            )
        return normalize

    def extra_repr(self) -> str:
        """Settings, for `repr`."""
        legacy = ", legacy_alpha_grad" if self.legacy_alpha_grad else ""
        return f"metric={self.metric}, kappa={self.kappa:g}, bn_pass={self.bn_pass}{legacy}"
