"""The folder of what varscale keeps: prepared datasets, embeddings made before."""

import os
from pathlib import Path


def home() -> Path:
    """`$VARSCALE_HOME`, else a folder in the user's cache."""
    given = os.environ.get("VARSCALE_HOME")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(cache) / "varscale"
