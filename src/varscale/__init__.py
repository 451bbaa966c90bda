"""Variational metric scaling for few-shot classification."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from varscale.version import __version__

if TYPE_CHECKING:
    from varscale import backbones, data, functional, hosts, scalers
    from varscale.classifier import FewShotClassifier
    from varscale.core import Episode
    from varscale.data import EpisodeSampler
    from varscale.evaluation import evaluate
    from varscale.model import PRESETS, Loss, Objective, ScaledModel, create
    from varscale.plug import LogitScale
    from varscale.runs import load

_HOMES = {
    "PRESETS": "model",
    "Episode": "core",
    "EpisodeSampler": "data",
    "FewShotClassifier": "classifier",
    "LogitScale": "plug",
    "Loss": "model",
    "Objective": "model",
    "ScaledModel": "model",
    "create": "model",
    "evaluate": "evaluation",
    "load": "runs",
}
_ROOMS = ("backbones", "data", "functional", "hosts", "scalers")

__all__ = [
    "PRESETS",
    "Episode",
    "EpisodeSampler",
    "FewShotClassifier",
    "LogitScale",
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
    """Import a name when it is first used: `varscale --help` does without torch."""
    if name in _ROOMS:
        return import_module(f"varscale.{name}")
    if name in _HOMES:
        return getattr(import_module(f"varscale.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'varscale' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
