"""ResNet-12 as in TADAM, with layers that a task can modulate."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from varscale.backbones.base import BACKBONES, Backbone
from varscale.core.registry import unknown
from varscale.functional import Condition, film

Activation = Literal["silu", "relu"]

FILTERS = (64, 128, 256, 512)
PER_BLOCK = 3


@BACKBONES.register("resnet12")
class ResNet12(Backbone):
    """Four residual blocks of three 3x3 convolutions: images become M = 512 numbers.

    A condition modulates the output of each of the twelve batch norms on the main path (M21),
    separately for each task. Convolutions have no bias, and there is no dropout.

    Args:
        in_channels: 3 for colour, 1 for grey.
        image_size: Height and width of the square images.
        width: Multiplies the 64, 128, 256 and 512 filters of the blocks: 0.25 for a quarter.
        activation: `silu` (swish-1, as published) or `relu`.
        pools: Blocks that end in a 2x2 max pool: 3 as in TADAM's code, 4 as in its text.
        pixel_range: Multiplies the pixels: 1 for 0..1, 255 for the raw values of TADAM's code.

    Attributes:
        film_channels: Channels of each of the twelve modulated layers.

    Example:
        >>> ResNet12(image_size=32, width=0.25)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 128])
    """

    def __init__(
        self,
        *,
        in_channels: int = 3,
        image_size: int = 84,
        width: float = 1.0,
        activation: Activation = "silu",
        pools: int = 3,
        pixel_range: float = 1.0,
    ) -> None:
        super().__init__()
        if activation not in get_args(Activation):
            raise unknown("activation", activation, get_args(Activation))
        if pools not in range(len(FILTERS) + 1):
            raise ValueError(f"Expected 0 to {len(FILTERS)} pools, got {pools!r}.")
        if not 0 < pixel_range < float("inf"):
            raise ValueError(f"Expected pixel_range > 0, got {pixel_range!r}.")
        if not 1 / FILTERS[0] <= width < float("inf"):
            raise ValueError(f"Expected a width of at least 1/{FILTERS[0]}, got {width!r}.")
        if min(in_channels, image_size) < 1:
            raise ValueError(
                f"Expected at least one channel and one pixel, got {in_channels=}, {image_size=}."
            )
        filters = [round(width * n) for n in FILTERS]
        self.in_shape = (in_channels, image_size, image_size)
        self.out_dim = filters[-1]
        self.film_channels = tuple(n for n in filters for _ in range(PER_BLOCK))
        self.pixel_range = pixel_range
        self.blocks = nn.ModuleList(
            Block(channels, n, activation=activation, pool=number < pools)
            for number, (channels, n) in enumerate(
                zip((in_channels, *filters), filters, strict=False)
            )
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(
        self, items: Float[Tensor, "batch channel height width"], condition: Condition | None = None
    ) -> Float[Tensor, "batch dim"]:
        """Embed a batch of images; a condition needs equally many of each task, task by task."""
        if condition is not None and len(condition) != len(self.film_channels):
            raise ValueError(
                f"Expected a condition of {len(self.film_channels)} pairs, got {len(condition)}."
            )
        x = items.contiguous(memory_format=torch.channels_last)
        if self.pixel_range != 1:
            x = x * self.pixel_range
        for number, block in enumerate(self.blocks):
            start = number * PER_BLOCK
            x = block(x, None if condition is None else condition[start : start + PER_BLOCK])
        return x.mean((2, 3))


class Block(nn.Module):
    """Three convolutions plus a 1x1 shortcut, then an activation and an optional max pool."""

    def __init__(self, channels: int, filters: int, *, activation: Activation, pool: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            _convolution(filters if number else channels, filters, 3) for number in range(PER_BLOCK)
        )
        self.norms = nn.ModuleList(_batch_norm(filters) for _ in range(PER_BLOCK))
        self.shortcut = nn.Sequential(_convolution(channels, filters, 1), _batch_norm(filters))
        self.activation = nn.SiLU() if activation == "silu" else nn.ReLU()
        self.pool = pool

    def forward(self, x: Tensor, condition: Condition | None) -> Tensor:
        """Apply the block; a pool halves height and width, rounding up."""
        shortcut = self.shortcut(x)
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = norm(conv(x if number == 0 else self.activation(x)))
            if condition is not None:
                x = film(x, *condition[number])
        x = self.activation(x + shortcut)
        return F.max_pool2d(x, 2, ceil_mode=True) if self.pool else x


def _convolution(channels: int, filters: int, side: int) -> nn.Conv2d:
    conv = nn.Conv2d(channels, filters, side, padding=side // 2, bias=False)
    nn.init.normal_(conv.weight, std=(0.2 / (side * side * filters)) ** 0.5)  # as in TADAM
    return conv


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.05)
