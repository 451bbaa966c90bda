"""Embeddings that were made before, by the content of the item: nothing is embedded twice."""

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from varscale.core.home import home

MOST = 500
"""Keys to ask for at once: SQLite limits the length of a question."""


def content_key(content: str | bytes | np.ndarray) -> bytes:
    """Hash of an item: of a text, of a picture file, or of a row of numbers."""
    if isinstance(content, np.ndarray):
        content = np.ascontiguousarray(content, dtype=np.float32).tobytes()
    kind = b"text" if isinstance(content, str) else b"bytes"
    raw = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(kind + b"\0" + raw).digest()[:16]


class Cache:
    """Embeddings of one embedder in a SQLite file, which several processes may use at once."""

    def __init__(self, identity: str, folder: Path | None = None) -> None:
        folder = folder or home() / "embeddings"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{identity[:32]}.sqlite"
        try:
            self._open()
        except sqlite3.DatabaseError:  # damaged: what it had can be made again
            self.path.unlink()
            self._open()

    def _open(self) -> None:
        self.file = sqlite3.connect(self.path, timeout=60)
        self.file.execute("create table if not exists items (key blob primary key, vector blob)")
        self.file.commit()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The vectors that are there, by key."""
        found: dict[bytes, np.ndarray] = {}
        for start in range(0, len(keys), MOST):
            some = keys[start : start + MOST]
            marks = ",".join("?" * len(some))
            rows = self.file.execute(f"select * from items where key in ({marks})", some)
            found.update((key, np.frombuffer(vector, dtype=np.float32)) for key, vector in rows)
        return found

    def put(self, vectors: Mapping[bytes, np.ndarray]) -> None:
        """Store vectors, all or none."""
        rows = [(key, v.astype(np.float32).tobytes()) for key, v in vectors.items()]
        try:
            with self.file:
                self.file.executemany("insert or replace into items values (?, ?)", rows)
        except sqlite3.OperationalError as error:
            raise OSError(None, f"Embeddings cannot be stored ({error})", str(self.path)) from error
