"""Image files of every kind, and those that cannot be read."""

import zlib

import forms
import numpy as np
import pytest
from PIL import Image

from varscale.data import Dataset
from varscale.data.prepare import prepare
from varscale.data.readers import ReaderOptions


def test_every_kind_of_image(tmp_path, root):
    source = tmp_path / "kinds"
    half = Image.new("RGB", (40, 20), "red")
    half.paste("blue", (20, 0, 40, 20))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    deep = Image.fromarray(np.full((10, 10), 40_000, dtype=np.uint16))
    kinds = {
        "grey": forms.encoded(Image.new("L", (10, 10), 99)),
        "palette": forms.encoded(Image.new("RGB", (10, 10), (10, 200, 30)).quantize(2)),
        "clear": forms.encoded(Image.new("RGBA", (10, 10), (0, 0, 0, 0))),
        "deep": forms.encoded(deep),
        "turned": forms.encoded(half, "JPEG", exif=exif, quality=95),
        "one bit": forms.encoded(Image.new("1", (10, 10), 1)),
    }
    for name, content in kinds.items():
        forms.write(source / name / "a.png", content)
    prepare("kinds", source, ReaderOptions(size=10, split="1/0/0"), root=root)
    dataset = Dataset.open("kinds", root)
    middle = {name: dataset.items[i, 5] for i, name in enumerate(dataset.class_names)}
    assert middle["grey"][5].tolist() == [99, 99, 99]
    assert middle["palette"][5].tolist() == pytest.approx([10, 200, 30], abs=30)
    assert middle["clear"][5].tolist() == [255, 255, 255]
    assert middle["deep"][5].tolist() == [156, 156, 156]  # 40,000 of 65,535
    assert middle["one bit"][5].tolist() == [255, 255, 255]
    assert middle["turned"][1][2] > 200  # blue came to the left
    assert middle["turned"][8][0] > 200


def test_the_centre_square_is_kept(tmp_path, root):
    wide = Image.new("RGB", (300, 100), "black")
    wide.paste("white", (100, 0, 200, 100))
    for name in ("a", "b"):
        forms.write(tmp_path / "wide" / name / "x.png", forms.encoded(wide))
    prepare("wide", tmp_path / "wide", ReaderOptions(size=50, grey=True), root=root)
    assert (Dataset.open("wide", root).items == 255).all()


def bomb(side):
    """A PNG of a few hundred bytes that says it has side x side pixels."""
    small = bytearray(forms.encoded(Image.new("L", (8, 8))))
    small[16:24] = side.to_bytes(4, "big") * 2
    small[29:33] = zlib.crc32(bytes(small[12:29])).to_bytes(4, "big")
    return bytes(small)


@pytest.mark.parametrize("side", [8_000, 60_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_decompression_bombs_are_refused(side, tmp_path, root):
    forms.write(tmp_path / "bomb" / "class" / "a.png", bomb(side))
    forms.write(tmp_path / "bomb" / "z" / "0.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match=r"a.png in .* cannot be read: .*pixels"):
        prepare("mine", tmp_path / "bomb", root=root)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Image.fromarray(np.full((4, 4), 7.0, dtype=np.float32)), "outside 0..1"),
        (Image.fromarray(np.full((4, 4), 70_000, dtype=np.int32)), "outside 0..65535"),
    ],
)
def test_values_without_a_known_range_are_refused(image, message, tmp_path, root):
    forms.write(tmp_path / "s" / "a" / "0.tif", forms.encoded(image, "TIFF"))
    forms.write(tmp_path / "s" / "z" / "0.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match=message):
        prepare("mine", tmp_path / "s", root=root)


def test_a_name_does_not_make_an_image(tmp_path, root):
    forms.write(tmp_path / "s" / "a" / "0.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n")
    forms.write(tmp_path / "s" / "z" / "0.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="0.jpg in .* it is not one of JPEG"):
        prepare("mine", tmp_path / "s", root=root)
