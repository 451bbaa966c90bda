"""ONNX files as embedders: pictures, or texts with a tokenizer beside the file."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from varscale.core.extras import needs
from varscale.core.files import file_hash
from varscale.data.images import decode_picture
from varscale.items.embedders.base import EMBEDDERS, Embedder
from varscale.items.sessions import open_session

TOKENIZER, PREPROCESSOR = "tokenizer.json", "preprocessor_config.json"
LONGEST = 256
"""Tokens of a text, at most, where the tokenizer sets no limit."""


@EMBEDDERS.register("onnx")
class OnnxFile(Embedder):
    """Pictures by an ONNX file; or texts, if a `tokenizer.json` lies beside it.

    Pictures are float32 from 0 to 1, (n, channel, height, width), normalised as a
    `preprocessor_config.json` beside the file says, if there is one. Of a graph that gives a vector
    per token, the embedding is their mean.
    """

    needs = "FILE"

    def __init__(self, file: str) -> None:
        path = Path(file)
        if not path.is_file():
            raise ValueError(f"Expected an ONNX file at {path}, got none.")
        self.path, self.session = path, open_session(str(path), str(path))
        self.inputs = {i.name: i for i in self.session.get_inputs()}
        beside = [
            p for p in (path.with_name(TOKENIZER), path.with_name(PREPROCESSOR)) if p.is_file()
        ]
        weights = sorted({path, *_kept_apart(path)})
        parts = "".join(file_hash(p) for p in [*weights, *beside])
        self.identity = hashlib.sha256(parts.encode()).hexdigest()
        first = next(iter(self.inputs.values()))
        if len(first.shape) == 4:
            self.takes = "image"
            self._read_preprocessor(path, first.shape)
        elif "input_ids" in self.inputs:
            self.takes = "text"
            self._read_tokenizer(path)
        else:
            raise ValueError(
                f"Expected {path} to take pictures (four axes) or tokens (input_ids), got "
                f"{', '.join(f'{name} {i.shape}' for name, i in self.inputs.items())}."
            )

    def prepare(self, content: str | bytes, where: str) -> Any:
        """Decode a picture at the size of the graph; leave a text as it is."""
        if isinstance(content, str):
            return content
        pixels = decode_picture(content, where, self.size, grey=self.channels == 1)
        return (pixels - self.mean) / self.std

    def embed(self, items: list[Any]) -> np.ndarray:
        """Run the graph."""
        if self.takes == "image":
            feed = {next(iter(self.inputs)): np.stack(items).astype(np.float32)}
        else:
            feed = self._tokens(items)
        given = {name: array for name, array in feed.items() if name in self.inputs}
        found = self.session.run(None, given)[0]
        if self.takes == "text" and found.ndim == 3:
            mask = feed["attention_mask"][..., None].astype(found.dtype)
            found = (found * mask).sum(1) / mask.sum(1)
        return np.asarray(found).reshape(len(items), -1)

    def _read_preprocessor(self, path: Path, shape: list[Any]) -> None:
        """How pictures are normalised, and their size, which a graph may leave open."""
        beside, facts = path.with_name(PREPROCESSOR), dict[str, Any]()
        if beside.is_file():
            facts = json.loads(beside.read_text())
        self.channels = shape[1] if isinstance(shape[1], int) else 3
        size = facts.get("crop_size", facts.get("size", 224))
        if isinstance(size, dict):
            size = size.get("height", size.get("shortest_edge", 224))
        self.size = shape[2] if isinstance(shape[2], int) else int(size)
        column = (self.channels, 1, 1)
        self.mean = np.resize(np.float32(facts.get("image_mean", 0.0)), column)
        self.std = np.resize(np.float32(facts.get("image_std", 1.0)), column)

    def _read_tokenizer(self, path: Path) -> None:
        beside = path.with_name(TOKENIZER)
        if not beside.is_file():
            raise ValueError(f"Expected {TOKENIZER} beside {path}, which takes tokens, got none.")
        with needs("onnx", "This embedder"):
            from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(str(beside))
        self.tokenizer.enable_padding()
        if self.tokenizer.truncation is None:
            self.tokenizer.enable_truncation(LONGEST)

    def _tokens(self, texts: list[str]) -> dict[str, np.ndarray]:
        coded = self.tokenizer.encode_batch(texts)
        return {
            "input_ids": np.array([c.ids for c in coded], dtype=np.int64),
            "attention_mask": np.array([c.attention_mask for c in coded], dtype=np.int64),
            "token_type_ids": np.array([c.type_ids for c in coded], dtype=np.int64),
        }


def _kept_apart(path: Path) -> list[Path]:
    """Files that a graph keeps weights in: its protobuf has them by the key `location`."""
    graph, found = path.read_bytes(), []
    for match in re.finditer(rb"\n\x08location\x12([\x80-\xff]*[\x00-\x7f])", graph):
        length = sum((byte & 127) << 7 * i for i, byte in enumerate(match[1]))
        name = graph[match.end() : match.end() + length]
        found.append(path.parent / os.fsdecode(name))
    return [file for file in found if os.path.isfile(file)]  # which never raises
