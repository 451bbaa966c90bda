"""A fitted classifier as one safetensors file, with its settings as JSON in the header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from varscale.classifier.prior import Prior
from varscale.core.files import write_whole
from varscale.version import __version__

ARRAYS = ("examples", "labels", "names")
FITTED = ("classes_", "examples_", "labels_", "names_")
"""What fitting is made of, beside the prior."""


def write_classifier(
    path: Path, fitted: Mapping[str, Any], about: Mapping[str, Any] | None = None
) -> None:
    """Write what fitting has set, and facts about its items, whole or not at all."""
    prior, features = fitted["prior_"], fitted.get("feature_names_in_")
    arrays = {name: fitted[f"{name}_"] for name in ARRAYS if fitted[f"{name}_"] is not None}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    facts = {
        "version": __version__,
        "classes": fitted["classes_"].tolist(),
        "prior": prior.facts(),
        "features": None if features is None else features.tolist(),
        "about": dict(about or {}),
    }
    content = json.dumps(facts, default=lambda number: number.item())  # numpy's numbers
    write_whole(path, save({**tensors, **prior.tensors()}, {"varscale": content}))


def read_classifier(path: Path) -> dict[str, Any]:
    """Read what fitting had set. Never executes code; invalid contents raise ValueError."""
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no file"
        raise ValueError(f"Expected a model written by varscale fit at {path}, got {got}.")
    if (array := _array_file(path)) is not None:
        raise ValueError(
            f"Expected a model written by varscale fit, got {path}, {array} of embeddings. "
            f"Fit it first: varscale fit {path} {path.with_suffix('.safetensors')}"
        )
    try:
        with safe_open(path, framework="pt") as file:
            about = (file.metadata() or {}).get("varscale")
            if about is None:
                raise SafetensorError("no file of varscale")
            facts = json.loads(about)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        classes, features = np.array(facts["classes"]), facts["features"]
        arrays = {name: tensors[name].numpy() for name in ARRAYS if name in tensors}
        prior = Prior.restore(facts["prior"], tensors)
        _check(classes, **arrays, dim=prior.dim, features=features)
    except SafetensorError as error:
        raise ValueError(
            f"Expected a model written by varscale fit, got {path}, which is another file."
        ) from error
    except (LookupError, TypeError, ValueError, OSError, RecursionError) as e:
        raise ValueError(
            f"Expected a model written by this version of varscale fit, got {path}, which another "
            f"version wrote or which is damaged: {e!r}. Fit it again."
        ) from e
    fitted = {"classes_": classes, "prior_": prior, "n_features_in_": prior.dim}
    fitted |= {f"{name}_": arrays.get(name) for name in ARRAYS}
    if features is not None:
        fitted["feature_names_in_"] = np.array(features, dtype=object)
    return fitted


def read_about(path: Path) -> dict[str, Any]:
    """Read the facts about the items of a classifier; nothing if it was fitted to embeddings."""
    with safe_open(path, framework="np") as file:
        about = json.loads((file.metadata() or {})["varscale"]).get("about", {})
    if not isinstance(about, dict):
        raise ValueError(f"{path} is not a classifier that varscale saved: about is {about!r}.")
    return about


def _check(
    classes: np.ndarray,
    examples: np.ndarray,
    labels: np.ndarray,
    dim: int,
    features: list[str] | None,
    names: np.ndarray | None = None,
) -> None:
    if classes.ndim != 1 or classes.dtype.kind not in "biufU":
        raise ValueError("expected classes that are numbers or strings")
    if not np.array_equal(classes, np.unique(classes)):
        raise ValueError("expected sorted, distinct classes")
    if examples.shape != (len(labels), dim) or labels.shape != (len(examples),):
        raise ValueError("examples or labels have the wrong size")
    if features is not None and len(features) != dim:
        raise ValueError("the number of feature names is wrong")
    if labels.dtype != np.int64 or examples.dtype not in (np.float32, np.float64):
        raise ValueError("examples or labels have the wrong type")
    known = np.zeros(len(classes), dtype=bool)
    if len(labels) and (labels.min() < 0 or labels.max() >= len(classes)):
        raise ValueError("labels are out of range")
    known[labels] = True
    if names is not None:
        if names.shape != (len(classes), dim) or names.dtype != np.float64:
            raise ValueError("names have the wrong size or type")
        if np.isinf(names).any():
            raise ValueError("names must be finite")
        known |= ~np.isnan(names).any(1)
    if not known.all():
        raise ValueError("expected an example or a name of each class")
    if not np.isfinite(examples).all():
        raise ValueError("examples must be finite")


def _array_file(path: Path) -> str | None:
    """Which of numpy's files it is, if any."""
    with path.open("rb") as file:
        head = file.read(6)
    if head == b"\x93NUMPY":
        return "an .npy file"
    return "an .npz file" if head.startswith(b"PK") else None
