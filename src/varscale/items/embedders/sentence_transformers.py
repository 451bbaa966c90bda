"""Models of sentence-transformers."""

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from varscale.core.extras import needs
from varscale.items.embedders.base import EMBEDDERS, Embedder, folder_hash


@EMBEDDERS.register("sentence-transformers")
class SentenceTransformers(Embedder):
    """Texts, by a model of sentence-transformers in a folder."""

    needs = "FOLDER"
    takes = "text"

    @classmethod
    def executes(cls, rest: str) -> bool:
        """A folder with Python files, or with layers of other packages, may do."""
        folder, modules = Path(rest), Path(rest) / "modules.json"
        if any(folder.rglob("*.py")):
            return True
        try:
            layers = json.loads(modules.read_bytes()) if modules.is_file() else []
            return not all(layer["type"].startswith("sentence_transformers.") for layer in layers)
        except (ValueError, LookupError, TypeError, AttributeError):  # nobody knows what it names
            return True

    def __init__(self, folder: str, *, download: bool = False) -> None:
        path = Path(folder)
        if not path.is_dir():
            path = _find(folder, download)
        self.folder, self.identity = path, folder_hash(path)

    @cached_property
    def model(self) -> Any:
        """The model, loaded when the first text has to be embedded."""
        return load_offline(self.folder)

    def embed(self, items: list[Any]) -> np.ndarray:
        """Embed texts, all in one batch."""
        found = self.model.encode(items, batch_size=len(items), show_progress_bar=False)
        return np.asarray(found, dtype=np.float32)


def load_offline(folder: Path) -> Any:
    """Load a model from a folder, without a look at any hub."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with needs("text", "This embedder"):
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    except Exception as error:
        why = " ".join(str(error).split()) or repr(error)
        raise ValueError(
            f"Expected a model of sentence-transformers in {folder}, got {why[:200]}."
        ) from error


def _find(name: str, download: bool) -> Path:
    """Folder of a model of the hub: what was downloaded before, or, if allowed, now."""
    if not download:
        raise ValueError(
            f"Expected a folder with a model at {name}, got none. If it is a name on the hub, "
            "allow its download: --download."
        )
    os.environ.pop("HF_HUB_OFFLINE", None)
    with needs("text", "Downloading"):
        from huggingface_hub import snapshot_download
    try:
        return Path(snapshot_download(name))
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} cannot be downloaded: {why}.") from error
