"""Feature-wise linear modulation: what a task does to a layer of a network."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from varscale.alignment import promote

Condition = Sequence[tuple[Float[Tensor, "task _"], Float[Tensor, "task _"]]]
"""What a task does to a backbone: (gamma, beta), each (task, channel), for every one of its
`film_channels`."""


def film(
    x: Float[Tensor, "batch channel height width"],
    gamma: Float[Tensor, "task channel"],
    beta: Float[Tensor, "task channel"],
) -> Float[Tensor, "batch channel height width"]:
    r"""Every channel stretched and shifted by numbers of its task (M21).

    $h \leftarrow (1 + \gamma_t) \odot h + \beta_t$, all tasks at once. The batch holds as many
    items of each task, task by task.

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
            f"Expected as many items of each of {len(gamma)} tasks, got {len(x)} items in all."
        )
    wide, gamma, beta = promote(x, gamma, beta)  # 1 + gamma has few digits left in half
    stretch, shift = ((1 + gamma)[:, None, :, None, None], beta[:, None, :, None, None])
    by_task = wide.unflatten(0, (len(gamma), -1))
    return torch.addcmul(shift, by_task, stretch).flatten(0, 1).to(x.dtype)
