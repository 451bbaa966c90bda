"""Conv-4, the four-block convolutional network of few-shot learning, in a fast form."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from varscale.backbones.base import BACKBONES, Backbone
from varscale.core.registry import unknown

BatchNormInit = Literal["uniform", "ones"]
"""Initial batch-norm weights: `uniform` on (0, 1) as in PyTorch 0.4 and the published results, or
`ones` as in PyTorch today."""


class ConvBlocks(Backbone):
    """Blocks of 3x3 convolution, batch norm, 2x2 max pool, ReLU; then flatten.

    Textbooks put the ReLU before the pool. The two commute, in values and in gradients, and this
    order applies the ReLU to a quarter of the pixels. Batches run in channels_last, which is faster
    on CPU and GPU; the entries of the embedding keep the textbook's order.
    """

    def __init__(
        self,
        *,
        n_blocks: int,
        in_channels: int,
        image_size: int,
        filters: int,
        bn_init: BatchNormInit,
    ) -> None:
        super().__init__()
        side = image_size >> n_blocks  # each pool halves, rounding down
        if side < 1:
            raise ValueError(
                f"Expected images of at least {1 << n_blocks} pixels for {n_blocks} poolings, got "
                f"image_size={image_size}. Use larger images."
            )
        if bn_init not in get_args(BatchNormInit):
            raise unknown("bn_init", bn_init, get_args(BatchNormInit))
        self.in_shape = (in_channels, image_size, image_size)
        self.out_dim = filters * side * side
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for block in range(n_blocks):
            channels = filters if block else in_channels
            self.convs.append(nn.Conv2d(channels, filters, kernel_size=3, padding=1))
            norm = nn.BatchNorm2d(filters)
            if bn_init == "uniform":
                nn.init.uniform_(norm.weight)
            self.norms.append(norm)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(
        self, items: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch dim"]:
        """Embed a batch of images."""
        x = items.contiguous(memory_format=torch.channels_last)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.max_pool2d(norm(conv(x)), 2).relu_()
        return x.flatten(1)


@BACKBONES.register("conv4")
class Conv4(ConvBlocks):
    """Four blocks of 64 filters: 84x84 images become M = 1600 numbers, 32x32 256, 28x28 64.

    Args:
        in_channels: 3 for colour, 1 for grey.
        image_size: Height and width of the square images.
        filters: Filters of each block.
        bn_init: See `BatchNormInit`.

    Example:
        >>> Conv4(image_size=32)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 256])
    """

    def __init__(
        self,
        *,
        in_channels: int = 3,
        image_size: int = 84,
        filters: int = 64,
        bn_init: BatchNormInit = "uniform",
    ) -> None:
        super().__init__(
            n_blocks=4,
            in_channels=in_channels,
            image_size=image_size,
            filters=filters,
            bn_init=bn_init,
        )


@BACKBONES.register("tiny")
class Tiny(ConvBlocks):
    """Two blocks of 4 filters, for tests: 8x8 grey images become 16 numbers.

    Example:
        >>> Tiny()(torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 16])
    """

    def __init__(self, *, in_channels: int = 1, image_size: int = 8) -> None:
        super().__init__(
            n_blocks=2, in_channels=in_channels, image_size=image_size, filters=4, bn_init="uniform"
        )
