"""Open prepared datasets: items, labels, and a split by class."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from varscale.core.episode import Episode
from varscale.core.registry import unknown
from varscale.data.sampler import EpisodeRows
from varscale.data.split import SPLITS
from varscale.data.store import ITEMS, LABELS, check_quickly, data_root, list_prepared


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (uint8, height x width x channel) or embeddings (float32), memory-mapped.

    Attributes:
        name: Name of the dataset.
        items: All items, class by class.
        labels: Class of each item, as an index into `class_names`.
        class_names: Names of the classes, training classes first.
        class_split: `train`, `val` or `test` for each class.
        hash: Hash of the content.
    """

    name: str
    items: np.ndarray
    labels: Int[np.ndarray, " item"]
    class_names: tuple[str, ...]
    class_split: tuple[str, ...]
    hash: str

    @classmethod
    def open(cls, name: str, root: Path | None = None) -> "Dataset":
        """Open a prepared dataset, without copying it or reading unchanged files again."""
        root = data_root() if root is None else root
        if name == "glyphs" and name not in list_prepared(root):  # built in: drawn on first use
            from filelock import FileLock

            from varscale.data.prepare import prepare
            from varscale.data.readers.glyphs import font_folder

            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / ".glyphs.first"):  # one process draws, others wait for it
                if name not in list_prepared(root):
                    prepare(name, font_folder(), root=root)
        manifest = check_quickly(root, name)
        return cls(
            name,
            np.load(root / name / ITEMS, mmap_mode="r"),
            np.load(root / name / LABELS),
            tuple(manifest.class_names),
            tuple(manifest.class_split),
            manifest.hash,
        )

    def __getitem__(self, split: str) -> "Split":
        """Items of the classes of a split."""
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        chosen = np.array([home == split for home in self.class_split])
        if not chosen.any():
            raise ValueError(f"The dataset {self.name!r} has no {split} classes.")
        rows = np.flatnonzero(chosen[self.labels])
        return Split(self, split, rows, self.labels[rows])

    @property
    def is_images(self) -> bool:
        """Whether items are images rather than embeddings."""
        return self.items.ndim == 4


@dataclass(frozen=True, eq=False)
class Split:
    """The part of a dataset whose classes belong to one split.

    Attributes:
        dataset: The whole dataset.
        name: `train`, `val` or `test`.
        rows: Rows of the dataset.
        labels: Classes of these rows, as an `EpisodeSampler` takes them.
    """

    dataset: Dataset
    name: str
    rows: Int[np.ndarray, " item"]
    labels: Int[np.ndarray, " item"]

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, n_items: int) -> "Split":
        """Keep only the first items of each class."""
        order = np.argsort(self.labels, kind="stable")
        ranked = self.labels[order]
        place = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)  # within its class
        kept = np.sort(order[place < n_items])
        return Split(self.dataset, self.name, self.rows[kept], self.labels[kept])

    def items(self, index: Int[Tensor, "*shape"]) -> Float[Tensor, "..."]:
        """Items by their index in the split; images as (channel, height, width) in 0..1.

        Images keep the memory order in which Conv-4 is fastest.
        """
        gathered = torch.from_numpy(self.dataset.items[self.rows[index.numpy()]])
        if not self.dataset.is_images:
            return gathered
        return gathered.div(255).movedim(-1, -3)

    def episode(self, rows: EpisodeRows) -> Episode:
        """Episode of the tasks that a sampler has drawn from `labels`."""
        items = self.items(torch.cat([rows.support.flatten(), rows.query.flatten()]))
        support, query = items.tensor_split([rows.support.numel()])
        return Episode.trust(  # items were checked when they were prepared
            support=support.unflatten(0, rows.support.shape),
            support_labels=rows.support_labels,
            query=query.unflatten(0, rows.query.shape),
            query_labels=rows.query_labels,
            n_way=rows.n_way,
        )
