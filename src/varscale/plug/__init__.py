"""A learned scale in other people's code: `LogitScale` for any loop, `scaled` for known losses.

Nothing here knows runs or episodes.
"""

from varscale.plug.logit_scale import LogitScale
from varscale.plug.losses import ScaledLoss, scaled

__all__ = ["LogitScale", "ScaledLoss", "scaled"]
