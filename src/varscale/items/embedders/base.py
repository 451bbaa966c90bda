"""Base class of embedders, and how one is chosen by a word."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from varscale.core.files import file_hash
from varscale.core.registry import Registry

EMBEDDERS: "Registry[Embedder]" = Registry("embedder", group="varscale.embedders")


class Embedder(ABC):
    """Turns texts, or pictures, into vectors. A member implements `embed`.

    Attributes:
        spec: How it was chosen, such as `run:runs/svs`.
        takes: What it embeds; `None` if it does either.
        identity: Hash of its weights and settings: embeddings of one identity are comparable.
        batch: Items to embed at once.
    """

    needs: ClassVar[str] = ""  # what stands behind the colon; empty for nothing
    spec: str
    takes: Literal["text", "image"] | None = None
    identity: str
    batch: int = 64

    @classmethod
    def executes(cls, rest: str) -> bool:
        """Whether making it executes code that varscale does not know."""
        return False

    def prepare(self, content: str | bytes, where: str) -> Any:
        """Make what `embed` takes of one item; raise ValueError if it cannot be read."""
        return content

    @abstractmethod
    def embed(self, items: list[Any]) -> np.ndarray:
        """Embed prepared items, one row each."""


def make_embedder(spec: str, *, download: bool = False) -> Embedder:
    """Make the embedder that a word names: `minilm`, `run:RUN`, `onnx:FILE`, ...

    Args:
        spec: Name of a member, then after a colon what it needs.
        download: Whether it may download weights.
    """
    name, _, rest = spec.partition(":")
    member: Any = EMBEDDERS[name]
    if bool(rest) != bool(member.needs):
        expected = f"{name}:{member.needs}" if member.needs else name
        raise ValueError(f"Expected the embedder {expected}, got {spec!r}.")
    given = {"download": download} if "download" in EMBEDDERS.options(name) else {}
    embedder: Embedder = member(rest, **given) if rest else member()
    embedder.spec = spec
    return embedder


def executes_code(spec: str) -> bool:
    """Whether making the embedder of a word executes code that varscale does not know."""
    name, _, rest = spec.partition(":")
    return EMBEDDERS[name].executes(rest)


def taken_by(spec: str) -> Literal["text", "image"] | None:
    """What an embedder takes, as far as its name tells; it need not be there."""
    name = spec.partition(":")[0]
    return EMBEDDERS[name].takes if name in EMBEDDERS.loaded() else None


def fitted_embedder(
    path: Path,
    fitted: Mapping[str, str],
    *,
    given: str | None = None,
    download: bool = False,
    make: Callable[..., Embedder] = make_embedder,
) -> Embedder:
    """Make the embedder that a model was fitted with; raise ValueError if it is another one.

    Args:
        path: File of the model.
        fitted: Its `spec` and `identity`.
        given: Where that embedder is now, if it has moved.
        download: Whether it may be downloaded.
        make: Makes an embedder of a word.
    """
    try:
        if given is None and executes_code(fitted["spec"]):
            raise ValueError(
                "it runs code, which a model file may not start by itself. If you trust that code, "
                f"name it: --embedder {fitted['spec']}."
            )
        made = make(given or fitted["spec"], download=download)
    except ValueError as error:
        if given is not None:
            raise
        raise ValueError(
            f"{path} was fitted with the embedder {fitted['spec']}, which cannot be used here: "
            f"{error} If it has moved, say where by --embedder."
        ) from error
    if made.identity != fitted["identity"]:
        raise ValueError(
            f"Expected the embedder that {path} was fitted with, {fitted['spec']} (weights "
            f"{fitted['identity'][:12]}), got {made.spec} (weights {made.identity[:12]}). Fit "
            "again to use another one."
        )
    return made


def folder_hash(folder: Path) -> str:
    """SHA-256 of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(".") and not name.endswith(".md"):
            digest.update(f"{name}\0{file_hash(path)}\0".encode())
    return digest.hexdigest()
