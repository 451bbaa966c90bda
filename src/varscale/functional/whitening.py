"""Whitening: centre embeddings and make their within-class covariance (nearly) isotropic."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.functional.prototypes import EPS, prototypes


@dataclass(frozen=True, eq=False)
class Whitening:
    r"""The map $z = W^\top (x - m)$, applied before the scaled cosine (M28).

    Attributes:
        mean: $m$, the new origin.
        matrix: $W$; `None` for the identity.
    """

    mean: Float[Tensor, " dim"]
    matrix: Float[Tensor, "dim dim"] | None = None

    def __call__(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Map embeddings, in float32 or wider."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        z = x - self.mean.to(x)
        return z if self.matrix is None else z @ self.matrix.to(x)

    @classmethod
    def learn(
        cls,
        x: Float[Tensor, "item dim"],
        labels: Integer[Tensor, " item"],
        *,
        shrinkage: float | None = None,
    ) -> "Whitening":
        r"""Learn the map from base classes.

        The origin is the mean of the class means, so that a class of many items counts no more than
        the others.

        Args:
            x: Embeddings of base classes.
            labels: Their classes, 0, 1, and so on.
            shrinkage: $\rho$ in $\Sigma_\rho = (1 - \rho) \Sigma + \rho \frac{\operatorname{tr}
                \Sigma}{M} I$, with $\Sigma$ the covariance within classes: $W = Q \Lambda^{-1/2}$
                of $\Sigma_\rho = Q \Lambda Q^\top$. 1 only rotates into the eigenbasis, 0 is plain
                whitening, `None` leaves the axes unchanged.
        """
        places = labels.to(x.device, non_blocking=True)
        mean = prototypes(x, places, int(labels.max()) + 1).mean(0)
        if shrinkage is None:
            return cls(mean)
        values, vectors = torch.linalg.eigh(within_covariance(x.double(), labels))
        values = values.clamp_min(0)
        values = (1 - shrinkage) * values + shrinkage * values.mean()
        tiny = torch.finfo(x.dtype).tiny
        ratio = (values / values.mean().clamp_min(tiny)).clamp_min(torch.finfo(x.dtype).eps)
        return cls(mean, (vectors * ratio.rsqrt()).to(x.dtype).contiguous())


def within_covariance(
    x: Float[Tensor, "item dim"], labels: Integer[Tensor, " item"]
) -> Float[Tensor, "dim dim"]:
    r"""Pooled within-class covariance (M28).

    $\Sigma = \frac{1}{N - C} \sum_i (x_i - \bar x_{y_i}) (x_i - \bar x_{y_i})^\top$
    """
    n_classes = int(labels.max()) + 1
    labels = labels.to(x.device, non_blocking=True)
    residual = x - prototypes(x, labels, n_classes)[labels]
    return residual.T @ residual / max(len(x) - n_classes, 1)


def effective_dimensions(
    residual: Float[Tensor, "item dim"], labels: Integer[Tensor, " item"]
) -> float:
    r"""Dimensions that the noise within classes fills (M39).

    $d = (\operatorname{tr} \Sigma)^2 / \operatorname{tr} \Sigma^2$. Items of different classes are
    independent, so the mean square of their products is $\operatorname{tr} \Sigma^2$. Without noise
    it is 1.

    Args:
        residual: Items, each from the mean of its class.
        labels: Their classes.
    """
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    products = (residual @ residual.mT).masked_fill_(same, 0)
    trace = residual.square().sum(-1).mean().square()
    pairs = same.numel() - same.sum()
    found = trace * pairs / products.square().sum().clamp_min(EPS * trace)
    return min(max(found.nan_to_num().item(), 1.0), float(residual.shape[-1]))
