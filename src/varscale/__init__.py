"""Variational metric scaling for few-shot classification."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from varscale.estimator import FewShotClassifier

__all__ = [
    "PRESETS",
    "Episode",
    "EpisodeSampler",
    "FewShotClassifier",
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


def __getattr__(name: str) -> Any:
    """The estimator on first use: importing scikit-learn takes as long as importing torch."""
    if name == "FewShotClassifier":
        from varscale.estimator import FewShotClassifier

        return FewShotClassifier
    raise AttributeError(f"module 'varscale' has no attribute {name!r}")
