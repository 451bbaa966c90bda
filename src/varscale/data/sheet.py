"""Contact sheets: images of a dataset at a glance."""

import numpy as np
from PIL import Image, ImageDraw

from varscale.core.random import uniform
from varscale.data.dataset import Dataset
from varscale.data.split import SPLITS


def contact_sheet(
    dataset: Dataset, *, classes: int = 8, items: int = 10, seed: int = 0
) -> Image.Image:
    """Draw a row of `items` images for each of a few random classes of every split, with names."""
    if not dataset.is_images:
        raise ValueError(f"The dataset {dataset.name!r} has embeddings, which cannot be shown.")
    rows = []
    for split in SPLITS:
        members = [c for c, home in enumerate(dataset.class_split) if home == split]
        order = np.argsort(uniform(seed, f"sheet/{split}", 0, 1, len(members))[0])
        rows += [(split, members[i]) for i in sorted(order[:classes])]
    size = max(dataset.items.shape[1], 28)
    text = 12 if size < 40 else 16
    width, height = items * (size + 2), size + text + 4
    sheet = Image.new("RGB", (width, height * len(rows)), "white")
    pen = ImageDraw.Draw(sheet)
    for line, (split, label) in enumerate(rows):
        own = np.flatnonzero(dataset.labels == label)
        order = np.argsort(uniform(seed, f"sheet/{label}", 0, 1, len(own))[0])
        title = f"{split}: {dataset.class_names[label]} ({len(own)})"
        pen.text((2, line * height), title, fill="black", font_size=text - 2)
        for place, row in enumerate(own[order[:items]]):
            pixels = np.squeeze(dataset.items[row])
            tile = Image.fromarray(np.ascontiguousarray(pixels)).resize((size, size))
            sheet.paste(tile, (place * (size + 2), line * height + text))
    return sheet
