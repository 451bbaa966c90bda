"""Embedders: texts or pictures to vectors. Importing a member registers it.

An embedder knows its weights by a hash; nothing here knows tables or the classifier.
"""

from varscale.items.embedders import minilm, onnx, python, run, sentence_transformers
from varscale.items.embedders.base import EMBEDDERS, Embedder, make_embedder

__all__ = ["EMBEDDERS", "Embedder", "make_embedder"]
__all__ += ["minilm", "onnx", "python", "run", "sentence_transformers"]
