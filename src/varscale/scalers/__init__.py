"""Scalers: modules whose forward returns q(alpha | task). Importing a member registers it."""

from varscale.scalers.amortized import AVS, DAVS
from varscale.scalers.base import SCALERS, Scaler
from varscale.scalers.point import Fixed, Together
from varscale.scalers.stochastic import DSVS, SVS

__all__ = ["AVS", "DAVS", "DSVS", "SCALERS", "SVS", "Fixed", "Scaler", "Together"]
