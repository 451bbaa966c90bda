"""Where tasks come from."""

from varscale.data.dataset import Dataset, Split
from varscale.data.sampler import EpisodeRows, EpisodeSampler
from varscale.data.synthetic import GaussianTasks

__all__ = ["Dataset", "EpisodeRows", "EpisodeSampler", "GaussianTasks", "Split"]
