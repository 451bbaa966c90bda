"""Scalers: modules whose forward returns q(alpha | task), with their priors and KL.

Importing a member registers it. Nothing here knows optimisers, logits or shots.
"""

from varscale.scalers.amortized import AVS, DAVS
from varscale.scalers.base import SCALERS, Scaler
from varscale.scalers.low_rank import LowRankDAVS
from varscale.scalers.point import Fixed, Together
from varscale.scalers.posterior import Posterior
from varscale.scalers.stochastic import DSVS, SVS

__all__ = [
    "AVS",
    "DAVS",
    "DSVS",
    "SCALERS",
    "SVS",
    "Fixed",
    "LowRankDAVS",
    "Posterior",
    "Scaler",
    "Together",
]
