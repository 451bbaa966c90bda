"""Decode image files into small uint8 arrays."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""Formats that Pillow may recognise, whatever the name of the file."""
MAX_PIXELS = 60_000_000
"""Larger images are treated as decompression bombs."""


@dataclass(frozen=True)
class Record:
    """An image to read."""

    class_name: str
    split: str
    where: str  # its name in messages
    load: Callable[[], bytes | np.ndarray]  # the bytes of an image file, or pixels
    key: str  # sorts the images of its class
    turns: int = 0  # quarter turns to apply


def decode(record: Record, size: int, *, grey: bool, invert: bool = False) -> np.ndarray:
    """Decode an image: turn it upright, crop its centre square, resize it bilinearly.

    `grey` gives it one channel instead of three, `invert` swaps black and white.

    Returns:
        Pixels in uint8, (size, size, channel).
    """
    try:
        content = record.load()
        image = _open(content) if isinstance(content, bytes) else _from_pixels(content)
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels, over {MAX_PIXELS:,}")
        image = ImageOps.exif_transpose(image)
        image = _convert(image, "L" if grey else "RGB")
    except Exception as error:  # decoders may raise anything on broken files
        why = str(error) or repr(error)  # MemoryError has no message
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


def decode_picture(content: bytes, where: str, size: int, *, grey: bool) -> np.ndarray:
    """Decode a picture file into float32 channels from 0 to 1, (channel, size, size)."""
    pixels = decode(Record("", "", where, lambda: content, ""), size, grey=grey)
    return np.asarray(np.moveaxis(pixels, -1, 0).astype(np.float32) / np.float32(255))


def _open(content: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"it is not one of {', '.join(FORMATS)}") from None


def _convert(image: Image.Image, mode: str) -> Image.Image:
    """Convert to 8-bit grey or RGB: reduce deeper pixels, put transparency on white."""
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


def _from_pixels(array: np.ndarray) -> Image.Image:
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or not array.size:
        raise ValueError(f"expected uint8 pixels, got {array.dtype} of shape {array.shape}")
    return Image.fromarray(array)
