"""A host and a scaler joined: the head, the objective, `create` and its presets.

Nothing here knows how a model is trained or stored.
"""

from varscale.model.factory import create
from varscale.model.objective import Loss, Objective
from varscale.model.presets import PRESETS
from varscale.model.scaled import ScaledModel

__all__ = ["PRESETS", "Loss", "Objective", "ScaledModel", "create"]
