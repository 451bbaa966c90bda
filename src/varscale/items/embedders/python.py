"""Functions of a user as embedders."""

import hashlib
import io
from typing import Any

import numpy as np

from varscale.core.imports import fingerprints, import_located, locate_module
from varscale.items.embedders.base import EMBEDDERS, Embedder


@EMBEDDERS.register("python")
class PythonFunction(Embedder):
    """Texts, or pictures (as Pillow's images), by a function of yours: a list in, rows out."""

    needs = "MODULE:FUNCTION"

    @classmethod
    def executes(cls, rest: str) -> bool:
        """Importing the module does."""
        return True

    def __init__(self, address: str) -> None:
        module, _, name = address.rpartition(":")
        if not module or not name.isidentifier():
            raise ValueError(f"Expected the embedder python:MODULE:FUNCTION, got python:{address}.")
        located = locate_module(module)
        self.function: Any = getattr(import_located(located), name, None)
        if not callable(self.function):
            raise ValueError(f"Expected a function {name} in {module}, got {self.function!r}.")
        code = fingerprints([located])[0]["sha256"]
        self.identity = hashlib.sha256(f"{name} {code}".encode()).hexdigest()

    def prepare(self, content: str | bytes, where: str) -> Any:
        """Leave a text as it is; open a picture."""
        if isinstance(content, str):
            return content
        from PIL import Image

        try:
            image = Image.open(io.BytesIO(content))
            image.load()
        except Exception as error:
            raise ValueError(f"{where} cannot be read: {error}.") from error
        return image

    def embed(self, items: list[Any]) -> np.ndarray:
        """Call the function."""
        return np.asarray(self.function(items))
