"""Functions of a user as embedders."""

import hashlib
import inspect
import io
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from varscale.core.imports import fingerprints, import_located, locate_module
from varscale.data.images import FORMATS, MAX_PIXELS
from varscale.items.embedders.base import EMBEDDERS, Embedder


@EMBEDDERS.register("python")
class PythonFunction(Embedder):
    """Texts, or pictures (as Pillow's images), by a function of yours: a list in, rows out.

    It is known by the code of its module. Weights that lie elsewhere do not count, unless the
    module has a string `IDENTITY` that changes with them, such as their hash.
    """

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
        imported = import_located(located)
        self.function: Any = getattr(imported, name, None)
        if not callable(self.function):
            its = [other for other in vars(imported) if inspect.isfunction(vars(imported)[other])]
            raise ValueError(
                f"Expected a function {name} in {module}, which has {', '.join(its) or 'none'}."
            )
        code = fingerprints([located])[0]["sha256"]
        given = getattr(imported, "IDENTITY", None)
        weights = f" {given}" if isinstance(given, str) else ""
        self.identity = hashlib.sha256(f"{name} {code}{weights}".encode()).hexdigest()

    def prepare(self, content: str | bytes, where: str) -> Any:
        """Leave a text as it is; open a picture."""
        if isinstance(content, str):
            return content
        try:
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, over {MAX_PIXELS:,}")
            image.load()
        except UnidentifiedImageError as error:
            raise ValueError(
                f"{where} cannot be read: it is not one of {', '.join(FORMATS)}."
            ) from error
        except Exception as error:
            raise ValueError(f"{where} cannot be read: {error}.") from error
        return image

    def embed(self, items: list[Any]) -> np.ndarray:
        """Call the function."""
        return np.asarray(self.function(items))
