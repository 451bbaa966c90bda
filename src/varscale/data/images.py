"""From an image file to a small uint8 array."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""What Pillow may take a file for, whatever its name says."""
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
        image = _opened(content) if isinstance(content, bytes) else _pixels(content)
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels, over {MAX_PIXELS:,}")
        image = ImageOps.exif_transpose(image)
        image = _plain(image, "L" if grey else "RGB")
    except Exception as error:  # decoders raise what they like on broken files
        why = str(error) or repr(error)  # MemoryError has no words
        raise ValueError(f"{record.where} cannot be read: {why}.") from error
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((left, top, left + side, top + side))
    if side != size:
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(image).reshape(size, size, -1)
    if record.turns:
        pixels = np.rot90(pixels, record.turns)
    return 255 - pixels if invert else pixels


def _opened(content: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"it is none of {', '.join(FORMATS)}") from None


def _plain(image: Image.Image, mode: str) -> Image.Image:
    """Grey or RGB with 8 bits; 16-bit images are scaled, transparency is laid on white."""
    if image.mode.startswith("I") or image.mode == "F":
        values, top = np.asarray(image, dtype=np.float64), 1.0 if image.mode == "F" else 65535.0
        if not (values.min() >= 0 and values.max() <= top):  # NaN fails too
            raise ValueError(f"values outside 0..{top:g}; convert it to 8 bits first")
        image = Image.fromarray((values * (255 / top)).round().astype(np.uint8))
    elif "A" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert(mode)


def _pixels(array: np.ndarray) -> Image.Image:
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or not array.size:
        raise ValueError(f"expected uint8 pixels, got {array.dtype} of shape {array.shape}")
    return Image.fromarray(array)
