"""Feature-wise linear modulation (FiLM): a task multiplies and shifts the channels of a layer."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from varscale.core.tensors import promote

Condition = Sequence[tuple[Float[Tensor, "task _"], Float[Tensor, "task _"]]]
"""How tasks modulate a backbone: (gamma, beta), each (task, channel), for each of its
`film_channels`."""


def film(
    x: Float[Tensor, "batch channel height width"],
    gamma: Float[Tensor, "task channel"],
    beta: Float[Tensor, "task channel"],
) -> Float[Tensor, "batch channel height width"]:
    r"""Multiply and shift every channel by numbers of its task (M21).

    $h \leftarrow (1 + \gamma_t) \odot h + \beta_t$, all tasks at once. The batch holds the same
    number of items of each task, task by task.

    Example:
        >>> x = torch.ones(2, 1, 1, 1)
        >>> gamma, beta = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [5.0]])
        >>> film(x, gamma, beta).flatten().tolist()
        [1.0, 7.0]
    """
    if gamma.shape != beta.shape or gamma.shape[1:] != x.shape[1:2]:
        raise ValueError(
            f"Expected gamma and beta of shape (task, {x.shape[1]}), got {tuple(gamma.shape)} and "
            f"{tuple(beta.shape)}."
        )
    if not len(gamma) or len(x) % len(gamma):
        raise ValueError(
            f"Expected equally many items of each of {len(gamma)} tasks, got {len(x)} items in all."
        )
    wide, gamma, beta = promote(x, gamma, beta)  # in half precision 1 + gamma loses digits
    stretch, shift = ((1 + gamma)[:, None, :, None, None], beta[:, None, :, None, None])
    by_task = wide.unflatten(0, (len(gamma), -1))
    modulated: Tensor = _Affine.apply(by_task, stretch, shift)  # type: ignore[no-untyped-call]
    return modulated.flatten(0, 1).to(x.dtype)


class _Affine(torch.autograd.Function):
    """Stretch and shift, with a backward pass that writes one array of the input's size, not two.

    Modulation is limited by memory bandwidth.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, stretch: Tensor, shift: Tensor) -> Tensor:
        ctx.save_for_backward(x, stretch)
        return torch.addcmul(shift, x, stretch)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, stretch = ctx.saved_tensors
        (gradient,) = gradients
        product = gradient * x
        to_stretch = product.sum((1, 3, 4), keepdim=True)
        to_shift = gradient.sum((1, 3, 4), keepdim=True)
        return torch.mul(gradient, stretch, out=product), to_stretch, to_shift
