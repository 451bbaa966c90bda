"""Whitening: centre embeddings and make their within-class covariance (nearly) isotropic."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.functional.prototypes import prototypes


@dataclass(frozen=True, eq=False)
class Whitening:
    r"""$z = W^\top (x - m)$ (M28): what comes before the scaled cosine.

    Attributes:
        mean: $m$, the new origin.
        matrix: $W$; `None` for the identity.
    """

    mean: Float[Tensor, " dim"]
    matrix: Float[Tensor, "dim dim"] | None = None

    def __call__(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Map embeddings, in their own precision or in float32."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        z = x - self.mean.to(x)
        return z if self.matrix is None else z @ self.matrix.to(x)

    @classmethod
    def learn(
        cls,
        x: Float[Tensor, "item dim"],
        labels: Integer[Tensor, " item"],
        *,
        center: bool = True,
        shrinkage: float | None = None,
    ) -> "Whitening":
        r"""Learn the map from base classes.

        Args:
            x: Embeddings of base classes.
            labels: Their classes, 0, 1, and so on.
            center: Put the origin at the mean of their means: a class of many items, which would
                pull the mean of all items to itself, counts no more than the others.
            shrinkage: $\rho$ in $\Sigma_\rho = (1 - \rho) \Sigma + \rho \frac{\operatorname{tr}
                \Sigma}{M} I$, with $\Sigma$ the covariance within classes: $W = Q \Lambda^{-1/2}$
                of $\Sigma_\rho = Q \Lambda Q^\top$. 1 turns into the eigenbasis without stretching,
                0 is plain whitening, `None` leaves the axes alone.
        """
        mean = x.new_zeros(x.shape[1])
        if center:
            mean = prototypes(
                x, labels.to(x.device, non_blocking=True), int(labels.max()) + 1
            ).mean(0)
        if shrinkage is None:
            return cls(mean)
        values, vectors = torch.linalg.eigh(within_covariance(x.double(), labels))
        values = values.clamp_min(0)
        values = (1 - shrinkage) * values + shrinkage * values.mean()
        tiny = torch.finfo(x.dtype).tiny
        scale = (values / values.mean().clamp_min(tiny)).clamp_min(torch.finfo(x.dtype).eps)
        return cls(mean, (vectors * scale.rsqrt()).to(x.dtype).contiguous())


def origin_factor(n_classes: float, *, own: bool) -> float:
    r"""What an origin at the mean of some classes does to the scale of the cosine (M31).

    $(1 + 1/C)^{3/4}$ for other classes, $(1 - 1/C)^{3/4}$ for those classes themselves.
    """
    return float((1 - 1 / n_classes if own else 1 + 1 / n_classes) ** 0.75)


def within_covariance(
    x: Float[Tensor, "item dim"], labels: Integer[Tensor, " item"]
) -> Float[Tensor, "dim dim"]:
    r"""Covariance within classes, pooled (M28).

    $\Sigma = \frac{1}{N - C} \sum_i (x_i - \bar x_{y_i}) (x_i - \bar x_{y_i})^\top$
    """
    n_classes = int(labels.max()) + 1
    labels = labels.to(x.device, non_blocking=True)
    residual = x - prototypes(x, labels, n_classes)[labels]
    return residual.T @ residual / max(len(x) - n_classes, 1)
