"""From an image file to a small uint8 array."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MAX_PIXELS = 60_000_000
"""An image that says it is larger is taken for a decompression bomb."""


@dataclass(frozen=True)
class Record:
    """One image that is to be read.

    Attributes:
        class_name: Its class.
        split: `train`, `val` or `test`.
        where: What to call it in messages.
        load: Gives the bytes of an image file, or pixels.
        key: Its place among the images of its class.
        turns: Quarter turns to apply.
    """

    class_name: str
    split: str
    where: str
    load: Callable[[], bytes | np.ndarray]
    key: str
    turns: int = 0


def decode(
    record: Record, size: int, *, grey: bool, invert: bool = False
) -> UInt8[np.ndarray, "size size channel"]:
    """Read an image: upright, its centre square, resized bilinearly.

    Args:
        record: The image.
        size: Height and width of the result.
        grey: One channel instead of three.
        invert: Swap black and white.
    """
    try:
        content = record.load()
        image = Image.open(io.BytesIO(content)) if isinstance(content, bytes) else _pixels(content)
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels, over {MAX_PIXELS:,}")
        image = ImageOps.exif_transpose(image)
        image = _plain(image, "L" if grey else "RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{record.where} cannot be read: {error}.") from error
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((left, top, left + side, top + side))
    if side != size:
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(image).reshape(size, size, -1)
    if record.turns:
        pixels = np.rot90(pixels, record.turns)
    return 255 - pixels if invert else pixels


def _plain(image: Image.Image, mode: str) -> Image.Image:
    """Grey or RGB with 8 bits; 16-bit images are scaled, transparency is laid on white."""
    if image.mode in ("I;16", "I;16B", "I;16L", "I", "F"):
        values = np.asarray(image, dtype=np.float64)
        top = 65535.0 if values.max(initial=0) > 255 else 255.0
        image = Image.fromarray((values.clip(0, top) * (255 / top)).round().astype(np.uint8))
    elif "A" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert(mode)


def _pixels(array: np.ndarray) -> Image.Image:
    if array.dtype != np.uint8:
        raise ValueError(f"expected uint8 pixels, got {array.dtype}")
    return Image.fromarray(array)
