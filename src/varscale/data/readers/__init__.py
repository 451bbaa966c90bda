"""Readers: from what is in circulation to a list of records. Importing a member registers it."""

from varscale.data.readers.base import READERS, Options, Reader
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
    "Options",
    "Reader",
    "TieredImageNet",
]
