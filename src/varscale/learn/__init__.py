"""How anything is learned: optimisers, one step, a scaler beside your optimiser, held-out choices.

Nothing here knows a run directory.
"""

from varscale.learn.embeddings import choose_effective_tasks, learn_scaler
from varscale.learn.optimizers import follow, optimizers
from varscale.learn.rescaling import begin_at_data, rescale

__all__ = [
    "begin_at_data",
    "choose_effective_tasks",
    "follow",
    "learn_scaler",
    "optimizers",
    "rescale",
]
