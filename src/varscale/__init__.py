"""Variational metric scaling for few-shot classification."""

from varscale import backbones, data, functional, hosts, scalers
from varscale.data import EpisodeSampler
from varscale.episode import Episode
from varscale.evaluation import evaluate
from varscale.factory import create
from varscale.model import ScaledModel
from varscale.objective import Loss, Objective
from varscale.presets import PRESETS
from varscale.run import load
from varscale.version import __version__

__all__ = [
    "PRESETS",
    "Episode",
    "EpisodeSampler",
    "Loss",
    "Objective",
    "ScaledModel",
    "__version__",
    "backbones",
    "create",
    "data",
    "evaluate",
    "functional",
    "hosts",
    "load",
    "scalers",
]
