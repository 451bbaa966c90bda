"""Data: from files on disk to prepared datasets, and from these to episodes.

Readers, samplers and feeds belong here; nothing here knows a model.
"""

from typing import TYPE_CHECKING

from varscale.core.lazy import lazy_exports

if TYPE_CHECKING:
    from varscale.data.dataset import Dataset, Split
    from varscale.data.sampler import EpisodeRows, EpisodeSampler
    from varscale.data.synthetic import GaussianTasks

__all__ = ["Dataset", "EpisodeRows", "EpisodeSampler", "GaussianTasks", "Split"]
__getattr__ = lazy_exports(
    __name__,
    {
        "Dataset": "dataset",
        "EpisodeRows": "sampler",
        "EpisodeSampler": "sampler",
        "GaussianTasks": "synthetic",
        "Split": "dataset",
    },
)
