"""Base class of embedders, and how one is chosen by a word."""

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from varscale.core.files import file_hash
from varscale.core.registry import Registry
from varscale.data.images import Record, decode

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


def folder_hash(folder: Path) -> str:
    """SHA-256 of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(".") and not name.endswith(".md"):
            digest.update(f"{name}\0{file_hash(path)}\0".encode())
    return digest.hexdigest()


def decode_picture(content: bytes, where: str, size: int, *, grey: bool) -> np.ndarray:
    """Decode a picture file into float32 channels from 0 to 1, (channel, size, size)."""
    pixels = decode(Record("", "", where, lambda: content, ""), size, grey=grey)
    return np.asarray(np.moveaxis(pixels, -1, 0).astype(np.float32) / np.float32(255))
