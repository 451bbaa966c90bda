"""Data: from files on disk to prepared datasets, and from these to episodes.

Readers, samplers and feeds belong here; nothing here knows a model.
"""

from varscale.data.dataset import Dataset, Split
from varscale.data.sampler import EpisodeRows, EpisodeSampler
from varscale.data.synthetic import GaussianTasks

__all__ = ["Dataset", "EpisodeRows", "EpisodeSampler", "GaussianTasks", "Split"]
