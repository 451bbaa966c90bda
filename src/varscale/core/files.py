"""Writing files: whole or not at all, and never over a file of the user's. Their hashes."""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path


def check_target(
    path: Path,
    what: str,
    is_ours: Callable[[Path], bool],
    reads: Iterable[str | None] = (),
    *,
    makes_folder: bool = False,
) -> None:
    """Raise ValueError if a file cannot be written, or would replace one that we did not write.

    Args:
        path: File to write.
        what: What it will be, such as "a page".
        is_ours: Whether an existing file is such a one, which may be replaced.
        reads: Files that are read to make it, if they are files.
        makes_folder: Whether its folder is made, too.
    """
    folder = path.parent
    while makes_folder and not folder.exists():
        folder = folder.parent
    for given in reads:
        if given is not None and path.exists() and _exists(given) and path.samefile(given):
            raise ValueError(f"Expected a file to write that is not read, got {given}.")
    if path.is_dir() or not folder.is_dir():
        raise ValueError(f"Expected a file to write in an existing folder, got {path}.")
    if path.exists() and not (path.is_file() and (path.stat().st_size == 0 or is_ours(path))):
        raise ValueError(
            f"Expected a new file, or {what} that varscale wrote, got {path}, which is neither. "
            "Choose another name."
        )


def marked(mark: bytes, at: int = 0) -> Callable[[Path], bool]:
    """Make a function that tells if a file has a mark, `at` bytes behind its beginning."""

    def has_mark(path: Path) -> bool:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(len(mark)) == mark

    return has_mark


is_our_png = marked(b"tEXtSoftware\0varscale", at=37)
"""Whether a PNG says that we wrote it, in the first chunk behind its size."""


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # a text that is too long for a name
        return False


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, flush it to disk, and rename it into place.

    A reader of `path` finds the old content or the new, whatever happens in between. A link stays,
    and the file that it leads to is written.
    """
    path = path.resolve()
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
