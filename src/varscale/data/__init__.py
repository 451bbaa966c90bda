"""Where tasks come from."""

from varscale.data.sampler import EpisodeRows, EpisodeSampler
from varscale.data.synthetic import GaussianTasks

__all__ = ["EpisodeRows", "EpisodeSampler", "GaussianTasks"]
