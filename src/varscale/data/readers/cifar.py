"""CIFAR-100's python files, as CIFAR-FS and as FC100."""

from abc import abstractmethod
from typing import Any

from varscale.data.images import Record
from varscale.data.pickles import read_pickle
from varscale.data.readers.base import READERS, Reader, ReaderOptions, array_record
from varscale.data.tree import Tree

_FS_VAL = """beaver otter flatfish shark lamp television beetle butterfly sea camel cattle crab
crocodile maple_tree motorcycle tractor"""
_FS_TEST = """whale poppy rose sweet_pepper telephone bed table wardrobe leopard plain chimpanzee
fox snail worm baby man woman bicycle pickup_truck rocket"""


class CIFAR100(Reader):
    """The files `train`, `test` and `meta` of CIFAR-100: 600 images per class in all."""

    size = 32

    @abstractmethod
    def split_of(self, fine: str, coarse: int) -> str:
        """Split of a class, by its name and the number of its superclass."""

    def records(self, tree: Tree, options: ReaderOptions) -> list[Record]:
        """List all 60,000 images."""
        meta = self._load(tree, "meta")
        names = [name.decode(errors="surrogateescape") for name in meta[b"fine_label_names"]]
        records = []
        for part in ("train", "test"):
            content = self._load(tree, part)
            pixels = content[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            labels = zip(content[b"fine_labels"], content[b"coarse_labels"], strict=True)
            for row, (fine, coarse) in enumerate(labels):
                split, where = self.split_of(names[fine], coarse), f"{part} in {tree.name}"
                records.append(array_record(pixels, row, names[fine], split, where, part))
        return records

    @staticmethod
    def _load(tree: Tree, name: str) -> Any:
        paths = tree.find(name)
        if len(paths) != 1:
            raise ValueError(
                f"Expected CIFAR-100's python file {name!r} in {tree.name}, got {len(paths)}."
            )
        where = f"{paths[0]} in {tree.name}"
        content = read_pickle(tree.read(paths[0]), where, encoding="bytes")
        wanted = (
            [b"fine_label_names"] if name == "meta" else [b"data", b"fine_labels", b"coarse_labels"]
        )
        if not isinstance(content, dict) or any(key not in content for key in wanted):
            raise ValueError(f"{where} lacks {wanted}; is it CIFAR-100's python version?")
        return content


@READERS.register("cifar-fs")
class CIFARFS(CIFAR100):
    """CIFAR-FS: the 64 / 16 / 20 classes of Bertinetto and others."""

    def split_of(self, fine: str, coarse: int) -> str:
        """Split by the published list of class names."""
        return "val" if fine in _FS_VAL.split() else "test" if fine in _FS_TEST.split() else "train"


@READERS.register("fc100")
class FC100(CIFAR100):
    """FC100: 60 / 20 / 20 classes, whole superclasses to a split."""

    def split_of(self, fine: str, coarse: int) -> str:
        """Split by the number of the superclass."""
        return (
            "val" if coarse in {8, 11, 13, 16} else "test" if coarse in {0, 7, 12, 14} else "train"
        )
