"""Items of a user, from a CSV, a folder of pictures or a parquet file to answers.

Tables, embedders and the stream of answers belong here; nothing here knows the command line.
"""

from typing import TYPE_CHECKING

from varscale.core.lazy import lazy_exports

if TYPE_CHECKING:
    from varscale.items.collection import Collection, read
    from varscale.items.columns import Columns
    from varscale.items.embedders import EMBEDDERS, Embedder, make_embedder
    from varscale.items.graph import OnnxModel, load_graph
    from varscale.items.model import ItemModel, load_model
    from varscale.items.source import open_items

__all__ = [
    "EMBEDDERS",
    "Collection",
    "Columns",
    "Embedder",
    "ItemModel",
    "OnnxModel",
    "load_graph",
    "load_model",
    "make_embedder",
    "open_items",
    "read",
]
__getattr__ = lazy_exports(
    __name__,
    {
        "EMBEDDERS": "embedders",
        "Columns": "columns",
        "Embedder": "embedders",
        "ItemModel": "model",
        "OnnxModel": "graph",
        "Collection": "collection",
        "load_graph": "graph",
        "load_model": "model",
        "make_embedder": "embedders",
        "open_items": "source",
        "read": "collection",
    },
)
