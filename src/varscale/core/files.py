"""Atomic writes, after which a file is either complete or absent, and file hashes."""

import hashlib
import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, flush it to disk, and rename it into place.

    A reader of `path` finds the old content or the new, whatever happens in between.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync(path.parent)
    except BaseException as error:  # an interrupt must not leave anything behind either
        new.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
