"""Embedded items: from a file of embeddings, or from images and a model that embeds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from varscale.data.embeddings import SUFFIXES, read_items
from varscale.data.images import decode
from varscale.data.readers.base import file_record, image_paths
from varscale.data.tree import open_tree
from varscale.model import ScaledModel

BATCH = 64


@dataclass(frozen=True, eq=False)
class Items:
    """Embedded items.

    Attributes:
        names: What to call each: its row in the file, or its path in the folder.
        embeddings: One row each.
        classes: Class of each; `None` where it is not known.
    """

    names: Sequence[str]
    embeddings: np.ndarray
    classes: np.ndarray | None


def read_embedded(
    source: Path, *, model: ScaledModel | None = None, split: str | None = None
) -> Items:
    """Read what lies at a path as embeddings.

    Args:
        source: A file of embeddings; or, with a model, a folder or archive of images, whose classes
            are the names of the folders they lie in.
        model: Embeds images.
        split: Of a file of embeddings, only the classes of that split.
    """
    if model is None:
        if source.suffix not in SUFFIXES:
            raise ValueError(
                f"Expected a file of embeddings ({', '.join(SUFFIXES)}), got {source}. Images need "
                "a run that embeds them: --run RUN."
            )
        embeddings, classes, rows = read_items(source, split)
        return Items([str(row) for row in rows], embeddings, classes)
    if split is not None:
        raise ValueError("Images in folders have no split; leave out --split.")
    return _images(source, model)


@torch.inference_mode()
def _images(source: Path, model: ScaledModel) -> Items:
    shape = getattr(model.host.backbone, "in_shape", None)
    if model.host.conditioned or shape is None or len(shape) != 3:
        raise ValueError(
            "Expected a run that embeds images one by one, got one with "
            f"{type(model.host).__name__} and {type(model.host.backbone).__name__}."
        )
    channels, size, _ = shape
    tree = open_tree(source)
    paths = image_paths(tree)
    if not paths:
        raise ValueError(f"Expected images in {source}, got none.")
    parents = [PurePosixPath(path).parent.name for path in paths]
    parts = []
    for start in range(0, len(paths), BATCH):
        records = [file_record(tree, path, "", "") for path in paths[start : start + BATCH]]
        pixels = np.stack([decode(record, size, grey=channels == 1) for record in records])
        items = torch.from_numpy(pixels).div(255).movedim(-1, -3)
        parts.append(model.host.embed_items(items.unsqueeze(0))[0].float())
    return Items(paths, torch.cat(parts).numpy(), np.array(parents) if all(parents) else None)
