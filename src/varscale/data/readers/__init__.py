"""Readers: list the images of a dataset in its published format. Importing a member registers it.

A reader lists records and their splits; `images` decodes and `prepare` stores them.
"""

from varscale.data.readers import cifar, folders, glyphs, mini_imagenet, omniglot
from varscale.data.readers.base import READERS, Reader, ReaderOptions

__all__ = ["READERS", "Reader", "ReaderOptions"]
__all__ += ["cifar", "folders", "glyphs", "mini_imagenet", "omniglot"]
