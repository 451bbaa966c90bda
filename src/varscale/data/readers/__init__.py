"""Readers: list the images of a dataset in its published format. Importing a member registers it.

A reader lists records and their splits; `images` decodes and `prepare` stores them.
"""

from varscale.data.readers.base import READERS, Reader, ReaderOptions
from varscale.data.readers.cifar import CIFARFS, FC100
from varscale.data.readers.folders import CUB, ClassFolders, TieredImageNet
from varscale.data.readers.glyphs import Glyphs
from varscale.data.readers.mini_imagenet import MiniImageNet
from varscale.data.readers.omniglot import Omniglot

__all__ = [
    "CIFARFS",
    "CUB",
    "FC100",
    "READERS",
    "ClassFolders",
    "Glyphs",
    "MiniImageNet",
    "Omniglot",
    "Reader",
    "ReaderOptions",
    "TieredImageNet",
]
