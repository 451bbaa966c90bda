"""A classifier of items as one ONNX graph, run by onnxruntime alone: no torch, no scikit-learn."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from varscale.items.answers import Model, Scores
from varscale.items.columns import Columns, are_sound
from varscale.items.sessions import open_session
from varscale.items.source import Batch

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from varscale.items.cache import Cache
    from varscale.items.embedders import Embedder

PRODUCER = "varscale"
PICTURES = 64
"""Pictures to decode and classify at once."""


class OnnxModel(Model):
    """A graph that `varscale export` wrote, from pictures, or from embeddings, to probabilities.

    It cannot tell whether an item is one of the examples: the graph has none of them.

    Args:
        session: The graph.
        facts: Its metadata: `classes`, `reject`, `takes`, `columns`, `embedder`.

    Attributes:
        embedder: What embeds items before the graph; `None` if they are embeddings, or if the
            graph takes pictures.
        cache: Embeddings made before.
    """

    def __init__(self, session: "InferenceSession", facts: dict[str, Any]) -> None:
        self.session, self.facts = session, facts
        (given,) = session.get_inputs()
        self.input: str = given.name
        self.shape = tuple(given.shape[1:])
        self.columns = Columns(**(facts.get("columns") or {}))
        self.takes, self.reject = facts.get("takes", "embedding"), facts.get("reject")
        self.embedder: Embedder | None = None
        self.cache: Cache | None = None

    @property
    def classes(self) -> list[Any]:
        """The classes, in the order of the probabilities."""
        return list(self.facts["classes"])

    @property
    def whole(self) -> bool:
        """Whether the graph takes pictures themselves."""
        return self.input == "image"

    def run(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Run the graph.

        Args:
            x: Embeddings, one row each; or pictures from 0 to 1, (n, channel, size, size).

        Returns:
            Probability of each class, one row per item; whether each belongs to none of them.
        """
        kind = "pictures" if self.whole else "embeddings"
        if x.shape[1:] != self.shape:
            raise ValueError(
                f"Expected {kind} of shape {_shown(self.shape)}, as the graph takes them, got "
                f"{_shown(x.shape[1:])}. Make them as those that it was fitted to."
            )
        lost = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(1))
        if len(lost):
            raise ValueError(
                f"Expected finite numbers in {kind}, got NaN or infinity in {len(lost)} of "
                f"{len(x)}, first in number {lost[0]}. Leave these out."
            )
        feed = {self.input: np.ascontiguousarray(x, dtype=np.float32)}
        probability, unknown = self.session.run(["probability", "unknown"], feed)
        return np.asarray(probability), np.asarray(unknown)

    def score(self, batch: Batch) -> Scores:
        """Score a batch of items."""
        probability, unknown, bad = self._pictures(batch) if self.whole else self._rows(batch)
        unknown[list(bad)] = False
        own = np.zeros(len(batch), dtype=bool)
        return Scores(probability, None if self.reject is None else unknown, None, bad, own)

    def _rows(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """Embed items, and run the graph on their embeddings."""
        if self.embedder is None:  # and nothing that embeds is imported
            x = np.asarray(batch.contents, dtype=np.float32)
            batch.check(x)
            return *self.run(x), {}
        from varscale.items.embed import embed_batch

        x, bad = embed_batch(batch, self.embedder, self.cache)
        if x.shape[1] == 0:  # none could be read
            x = np.zeros((len(x), *self.shape), dtype=np.float32)
        return *self.run(x), bad

    def _pictures(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """Decode pictures, and run the graph on those that can be read."""
        from varscale.data.images import decode_picture

        probability = np.zeros((len(batch), len(self.classes)), dtype=np.float32)
        unknown, bad = np.zeros(len(batch), dtype=bool), dict(batch.bad)
        channels, size, _ = self.shape
        for start in range(0, len(batch), PICTURES):
            ready = {}
            for i in range(start, min(start + PICTURES, len(batch))):
                try:
                    if i not in bad:
                        where = batch.where(batch.start + i)
                        content = batch.contents[i]
                        ready[i] = decode_picture(content, where, size, grey=channels == 1)
                except ValueError as error:
                    bad[i] = str(error)
            if ready:
                rows = list(ready)
                probability[rows], unknown[rows] = self.run(np.stack(list(ready.values())))
        return probability, unknown, bad


def load_graph(
    path: Path,
    *,
    embedder: str | None = None,
    download: bool = False,
    make: "Callable[..., Embedder] | None" = None,
) -> OnnxModel:
    """Load what `varscale export` wrote of a fitted classifier.

    Args:
        path: The file.
        embedder: Where the embedder is now, if the graph needs one and it has moved.
        download: Whether it may be downloaded.
        make: Makes an embedder of a word.

    Raises ValueError for other graphs, and if the embedder is not that of the fit.
    """
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no file"
        raise ValueError(f"Expected a graph written by varscale export at {path}, got {got}.")
    session = open_session(str(path), str(path))
    model = OnnxModel(session, _facts(session, path))
    fitted = model.facts.get("embedder")
    if model.whole or fitted is None:
        if embedder is not None:
            has = "has its embedder inside" if model.whole else "takes embeddings"
            raise ValueError(f"{path} {has}; leave out --embedder.")
        return model
    from varscale.items.cache import Cache
    from varscale.items.embedders.base import fitted_embedder, make_embedder

    model.embedder = fitted_embedder(
        path, fitted, given=embedder, download=download, make=make or make_embedder
    )
    model.cache = Cache(model.embedder.identity)
    return model


def _facts(session: "InferenceSession", path: Path) -> dict[str, Any]:
    """Read the metadata of a graph; raise ValueError if it is not a fitted classifier."""
    meta = session.get_modelmeta()
    inputs = [given.name for given in session.get_inputs()]
    if meta.producer_name != PRODUCER:
        got = f"{path}, which {meta.producer_name or 'another program'} wrote"
    elif "support" in inputs:
        got = f"{path}, a trained run, which takes its classes as an input"
    elif inputs not in (["query"], ["image"]) or "classes" not in meta.custom_metadata_map:
        got = f"{path}, which has no classes"
    else:
        try:
            facts = {key: json.loads(value) for key, value in meta.custom_metadata_map.items()}
            if _is_sound(facts, session):
                return facts
        except (ValueError, RecursionError):
            pass
        got = f"{path}, whose metadata is damaged"
    raise ValueError(
        f"Expected a fitted classifier as varscale export writes it, got {got}. Write one: "
        "varscale export MODEL.safetensors FILE.onnx"
    )


def _is_sound(facts: dict[str, Any], session: "InferenceSession") -> bool:
    """Whether metadata can come from `varscale export`."""
    outputs = {given.name: given.shape for given in session.get_outputs()}
    classes, reject = facts["classes"], facts.get("reject")
    return (
        isinstance(classes, list)
        and [len(classes)] == outputs.get("probability", [])[1:]
        and "unknown" in outputs
        and (reject is None or isinstance(reject, int | float))
        and facts.get("takes") in ("embedding", "image", "text", None)
        and are_sound(facts.get("columns") or {}, facts.get("embedder"))
    )


def _shown(shape: tuple[Any, ...]) -> str:
    return " x ".join(map(str, shape))
