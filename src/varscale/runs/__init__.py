"""Training runs: config, run directory, checkpoint, logbook, and the trainer on Lightning Fabric.

Nothing here knows the paper.
"""

from varscale.runs.config import TrainConfig
from varscale.runs.run import Run, load

__all__ = ["Run", "TrainConfig", "load"]
