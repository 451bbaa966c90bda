"""Embeddings that were made before, by the content of the item: nothing is embedded twice."""

import hashlib
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from varscale.core.home import home

MOST = 500
"""Keys to ask for at once: SQLite limits the length of a question."""
WAIT = 60
"""Seconds to wait for other processes that write."""


def content_key(content: str | bytes | np.ndarray) -> bytes:
    """Hash of an item: of a text, of a picture file, or of a row of numbers."""
    if isinstance(content, np.ndarray):
        content = np.ascontiguousarray(content, dtype=np.float32).tobytes()
    kind = b"text" if isinstance(content, str) else b"bytes"
    raw = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(kind + b"\0" + raw).digest()[:16]


class Cache:
    """Embeddings of one embedder in a SQLite file, for several processes and threads at once.

    A damaged file is made again, empty. Where no file can be written, nothing is kept.
    """

    def __init__(self, identity: str, folder: Path | None = None) -> None:
        self.path = (folder or home() / "embeddings") / f"{identity[:32]}.sqlite"
        self.lock = Lock()
        self.file = self._open()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The vectors that are there, by key."""
        rows = self._use(lambda file: _select(file, keys))
        return {key: np.frombuffer(vector, dtype=np.float32) for key, vector in rows}

    def put(self, vectors: Mapping[bytes, np.ndarray]) -> None:
        """Store vectors, all or none."""
        rows = [(key, v.astype(np.float32).tobytes()) for key, v in vectors.items()]
        self._use(lambda file: file.executemany("insert or replace into items values (?, ?)", rows))

    def _use(self, act: Callable[[sqlite3.Connection], Iterable[Any]]) -> Iterable[Any]:
        """Act on the file, one thread at a time; nothing comes of a damaged file."""
        with self.lock:
            if self.file is None:
                return []
            try:
                with self.file:
                    return act(self.file)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise OSError(
                        None, f"Embeddings cannot be read or stored ({error})", str(self.path)
                    ) from error
                self.file.close()
                self.path.unlink(missing_ok=True)
                self.file = self._open()
                return []

    def _open(self) -> sqlite3.Connection | None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return _connect(self.path)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self.path.unlink()  # what it had can be made again
                return _connect(self.path)
        except (OSError, sqlite3.DatabaseError) as error:
            why = getattr(error, "strerror", None) or error
            warnings.warn(
                f"Embeddings are not kept: {why} ({self.path}). Name another folder by "
                "VARSCALE_HOME.",
                stacklevel=3,
            )
            return None


def _connect(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=WAIT, check_same_thread=False)
    try:
        with file:
            file.execute("create table if not exists items (key blob primary key, vector blob)")
    except sqlite3.DatabaseError:
        file.close()
        raise
    return file


def _select(file: sqlite3.Connection, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    found = []
    for start in range(0, len(keys), MOST):
        some = keys[start : start + MOST]
        marks = ",".join("?" * len(some))
        found += file.execute(f"select * from items where key in ({marks})", some).fetchall()
    return found


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is malformed or no database; others, such as a lock, have own classes."""
    return type(error) is sqlite3.DatabaseError
