"""Datasets of noise: speed does not depend on what the images show."""

from pathlib import Path

import numpy as np

from varscale.data import Dataset
from varscale.data.store import ITEMS, Manifest, finish, open_stage
from varscale.version import __version__


def noise_dataset(
    root: Path, item: tuple[int, ...], *, classes: int, per_class: int, name: str | None = None
) -> Dataset:
    """Prepare a dataset of uint8 images or float32 embeddings, with training classes only."""
    name = name or "x".join(map(str, item))
    generator, shape = np.random.default_rng(0), (classes * per_class, *item)
    images = len(item) == 3
    with open_stage(root, name) as stage:
        items = (
            generator.integers(256, size=shape, dtype=np.uint8)
            if images
            else generator.standard_normal(shape, dtype=np.float32)
        )
        np.save(stage / ITEMS, items)
        manifest = Manifest(
            name=name,
            kind="images" if images else "embeddings",
            shape=list(shape),
            class_names=[f"{k:04}" for k in range(classes)],
            class_split=["train"] * classes,
            class_counts=[per_class] * classes,
            source="noise",
            options={},
            version=__version__,
        )
        finish(stage, manifest, np.repeat(np.arange(classes), per_class))
    return Dataset.open(name, root)
