"""A fitted classifier as one safetensors file, with its settings as JSON in the header."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from varscale.classifier.prior import Prior
from varscale.core.files import write_whole
from varscale.version import __version__


@dataclass(frozen=True, eq=False)
class Stored:
    """Contents of a classifier's file.

    Attributes:
        classes: The classes, sorted.
        centres: Mean embedding of each.
        counts: Examples of each.
        own: Whether it is one of the prior's base classes.
        prior: What base classes taught.
        params: Arguments of the classifier: numbers, strings and `None`.
        features: Names of the dimensions, if they have any.
    """

    classes: Shaped[np.ndarray, " way"]
    centres: Float[np.ndarray, "way dim"]
    counts: Int[np.ndarray, " way"]
    own: Bool[np.ndarray, " way"]
    prior: Prior
    params: dict[str, Any]
    features: list[str] | None

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        tensors = {
            "centres": torch.from_numpy(self.centres),
            "counts": torch.from_numpy(self.counts),
            "own": torch.from_numpy(self.own),
            **self.prior.tensors(),
        }
        facts = {
            "version": __version__,
            "classes": self.classes.tolist(),
            "params": self.params,
            "prior": self.prior.facts(),
            "features": self.features,
        }
        content = json.dumps(facts, default=lambda number: number.item())  # numpy's numbers
        write_whole(path, save(tensors, {"varscale": content}))

    @classmethod
    def read(cls, path: Path) -> "Stored":
        """Read it. Never executes code; invalid contents raise ValueError."""
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
                facts = json.loads((file.metadata() or {})["varscale"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            stored = cls(
                np.array(facts["classes"]),
                tensors["centres"].numpy(),
                tensors["counts"].numpy(),
                tensors["own"].numpy(),
                Prior.restore(facts["prior"], tensors),
                dict(facts["params"]),
                facts["features"],
            )
            stored._check()
        except (SafetensorError, LookupError, TypeError, ValueError, OSError, RecursionError) as e:
            raise ValueError(f"{path} is not a classifier that varscale saved: {e!r}.") from e
        return stored

    def _check(self) -> None:
        n = len(self.classes)
        if self.classes.ndim != 1 or self.classes.dtype.kind not in "biufU":
            raise ValueError("expected classes that are numbers or strings")
        if not np.array_equal(self.classes, np.unique(self.classes)):
            raise ValueError("expected sorted, distinct classes")
        sizes = {self.counts.shape, self.own.shape}
        if self.centres.shape != (n, self.prior.dim) or sizes != {(n,)}:
            raise ValueError("class means or counts have the wrong size")
        if self.features is not None and len(self.features) != self.prior.dim:
            raise ValueError("the number of feature names is wrong")
        if self.own.dtype != np.bool_:
            raise ValueError("expected own to be true or false")
        if not np.isfinite(self.centres).all() or (self.counts < 1).any():
            raise ValueError("class means must be finite and of at least one example")


def _array_file(path: Path) -> str | None:
    """Which of numpy's files it is, if any."""
    with path.open("rb") as file:
        head = file.read(6)
    if head == b"\x93NUMPY":
        return "an .npy file"
    return "an .npz file" if head.startswith(b"PK") else None
