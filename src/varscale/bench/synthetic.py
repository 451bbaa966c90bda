"""Datasets of noise: speed does not depend on what the images show."""

from pathlib import Path

import numpy as np

from varscale.data import Dataset
from varscale.data.store import ITEMS, finish, open_stage


def noise_dataset(
    root: Path, item: tuple[int, ...], *, classes: int, per_class: int, name: str | None = None
) -> Dataset:
    """Prepare a dataset of uint8 images or float32 embeddings, with training classes only."""
    name = name or "x".join(map(str, item))
    generator, shape = np.random.default_rng(0), (classes * per_class, *item)
    with open_stage(root, name) as stage:
        items = (
            generator.integers(256, size=shape, dtype=np.uint8)
            if len(item) == 3
            else generator.standard_normal(shape, dtype=np.float32)
        )
        np.save(stage / ITEMS, items)
        labels = np.repeat(np.arange(classes), per_class)
        homes = [(f"{k:04}", "train") for k in range(classes)]
        finish(stage, name, labels, homes, source="noise", options={}, skipped=[])
    return Dataset.open(name, root)
