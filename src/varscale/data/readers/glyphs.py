"""Glyphs: letters of the world's scripts, drawn from the fonts that come with matplotlib."""

import unicodedata
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from varscale.core.random import uniform
from varscale.data.images import Record
from varscale.data.readers.base import READERS, Reader, ReaderOptions
from varscale.data.tree import Tree, open_folder

DRAWINGS = 20
CANVAS = 64

SCRIPTS = {
    **dict.fromkeys(("LATIN", "CYRILLIC", "GREEK", "CANADIAN"), "train"),
    **dict.fromkeys(("ARMENIAN", "LISU"), "val"),
    **dict.fromkeys(("GEORGIAN", "TIFINAGH", "HEBREW", "NKO"), "test"),
}
"""Split of each script: test scripts do not occur in training."""

_MOST = 60  # classes of a script, at most
_FACES = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "STIXGeneral")


@READERS.register("glyphs")
class Glyphs(Reader):
    """Almost 500 letters of ten scripts, 20 drawings each, 28x28; split by script.

    A seed gives every drawing its own font face, slant, stroke, size, place and noise.
    """

    size = 28
    grey = True
    options = (*Reader.options, "seed")

    def open(self, source: Path) -> Tree:
        """Open the folder of fonts."""
        if not (source / "DejaVuSans.ttf").is_file():
            raise ValueError("The glyphs are drawn, not read: leave out the source.")
        return open_folder(source)

    def records(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        """List all drawings; loading a record draws it."""
        records = []
        for number, (char, faces) in enumerate(_letters(tree).items()):
            name = unicodedata.name(char)
            split = SCRIPTS[name.split()[0]]
            for drawing in range(DRAWINGS):
                index = number * DRAWINGS + drawing
                load = partial(draw, char, faces, index, options.seed)
                where = f"drawing {drawing} of {name}"
                records.append(Record(name, split, where, load, f"{drawing:02d}"))
        return records


def font_folder() -> Path:
    """Where matplotlib keeps its fonts."""
    spec = find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            "The glyphs are drawn with matplotlib's fonts, and matplotlib is not installed. "
            "Install it: pip install 'varscale[train]'."
        )
    return Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf"


def _letters(tree: Tree) -> dict[str, tuple[str, ...]]:
    """Letters in at least two faces that look different from all others, with these faces."""
    from matplotlib.ft2font import FT2Font

    paths = sorted(p for p in tree.files if p.startswith(_FACES) and "Display" not in p)
    charmaps = {path: set(FT2Font(str(font_folder() / path)).get_charmap()) for path in paths}
    letters: dict[str, tuple[str, ...]] = {}
    seen: set[bytes] = set()
    taken = dict.fromkeys(SCRIPTS, 0)
    for code in sorted(charmaps["DejaVuSans.ttf"]):
        char = chr(code)
        script = unicodedata.name(char, "?").split()[0]
        if script not in SCRIPTS or unicodedata.category(char) not in ("Lu", "Ll", "Lo"):
            continue
        faces = tuple(str(font_folder() / p) for p in paths if code in charmaps[p])
        # Latin A and Greek Alpha look the same; accented letters look like the plain letter.
        ink = _ink(char, faces[0], 48, 0)
        looks = ink.tobytes()
        accented, speck = bool(unicodedata.decomposition(char)), (ink > 0).sum() < 150
        full = taken[script] >= _MOST
        if looks in seen or accented or speck or len(faces) < 2 or full:
            continue
        seen.add(looks)
        taken[script] += 1
        letters[char] = faces
    return letters


def draw(char: str, faces: tuple[str, ...], index: int, seed: int) -> np.ndarray:
    """Draw a letter as drawing number `index`: bright ink on black, distorted by a seed."""
    u = uniform(seed, "glyphs", index, 1, 9 + 2 * CANVAS)[0]
    face = faces[int(u[0] * len(faces))]
    ink = Image.fromarray(_ink(char, face, 36 + int(14 * u[1]), int(3 * u[2])))
    turn, shear, stretch = np.radians(40 * u[3] - 20), 0.7 * (u[4] - 0.5), 0.75 + 0.5 * u[5]
    cosine, sine = np.cos(turn), np.sin(turn)
    shape = (
        np.array([[cosine, -sine], [sine, cosine]]) @ [[1, shear], [0, 1]] @ np.diag([stretch, 1])
    )
    middle = np.array([CANVAS / 2, CANVAS / 2])
    shift = middle - shape @ (middle + 10 * (u[6:8] - 0.5))
    matrix = (*shape[0], shift[0], *shape[1], shift[1])
    ink = ink.transform(ink.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    # Shift rows and columns a little, as in handwriting.
    waver = np.cumsum(u[9:].reshape(2, CANVAS) - 0.5, axis=1) * (0.4 + 0.8 * u[8])
    pixels = np.asarray(ink)
    rows, columns = np.indices(pixels.shape)
    rows = (rows + waver[0].round().astype(int)[None, :]).clip(0, CANVAS - 1)
    columns = (columns + waver[1].round().astype(int)[:, None]).clip(0, CANVAS - 1)
    smooth = Image.fromarray(pixels[rows, columns]).filter(ImageFilter.GaussianBlur(0.8))
    return np.asarray(smooth)


@cache
def _font(face: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(face, size)


def _ink(char: str, face: str, size: int, stroke: int) -> np.ndarray:
    """Draw a letter in the middle of the canvas."""
    canvas = Image.new("L", (CANVAS, CANVAS))
    font = _font(face, size)
    left, top, right, bottom = font.getbbox(char, stroke_width=stroke)
    place = ((CANVAS - left - right) / 2, (CANVAS - top - bottom) / 2)
    ImageDraw.Draw(canvas).text(place, char, fill=255, font=font, stroke_width=stroke)
    return np.asarray(canvas)
