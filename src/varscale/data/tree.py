"""Folders and archives of files, behind one interface. Nothing is ever extracted to disk."""

import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TypeVar

T = TypeVar("T")

MAX_FILE = 2**31
"""Largest file to read into memory, in bytes; the largest pickle of miniImageNet has 1.2e9."""
MAX_PICTURE = 2**28
"""Largest picture file, in bytes; the largest picture to decode has 2.4e8 uncompressed."""
MAX_TAR = 2**32
"""Largest tar, in bytes of all its files, which are kept in memory; CUB-200-2011 has 1.2e9."""
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""Endings of the names of picture files."""


@dataclass(frozen=True)
class Tree:
    """Files by relative path, with `/` between the parts."""

    name: str  # in messages
    files: list[str]  # all paths, sorted
    read: Callable[[str], bytes]  # the content of a file

    def find(self, *names: str) -> list[str]:
        """Paths whose last part is one of `names`."""
        return [path for path in self.files if PurePosixPath(path).name in names]


def open_folder(folder: Path) -> Tree:
    """Open a folder on disk; hidden files are ignored."""

    def read(path: str) -> bytes:
        _check_size(str(folder), path, (folder / path).stat().st_size)
        return (folder / path).read_bytes()

    files = (path.relative_to(folder) for path in walk(folder))
    shown = sorted(path.as_posix() for path in files if not _is_hidden(path.parts))
    return Tree(str(folder), shown, read)


def _open_zip(archive: Path) -> Tree:
    """Open a zip archive, read in place; a member that leads out of it raises ValueError."""
    try:
        content = zipfile.ZipFile(archive)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Expected the names in {archive} in UTF-8, got {error.object!r}. Pack it again."
        ) from error
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive} is not a readable zip: {error}. Copy it again.") from error

    def read(path: str) -> bytes:
        try:
            return content.read(path)
        except Exception as error:  # damage, passwords and rare compressions raise different ones
            why = str(error) or repr(error)
            raise ValueError(f"{path} in {archive} cannot be read: {why}.") from error

    for info in content.infolist():
        _check_member(str(archive), info.filename, info.file_size)
    members = [m for m in content.namelist() if not m.endswith("/")]
    files = sorted(m for m in members if not _is_hidden(PurePosixPath(m).parts))
    _check_distinct(files, str(archive))
    return Tree(str(archive), files, read)


def _open_tar(archive: Path) -> Tree:
    """Read a tar, compressed or not, into memory; meant for archives of few files."""
    try:
        with _read_header(partial(tarfile.open, archive)) as tar:
            content = _contents(tar, str(archive))
    except MemoryError as error:
        raise ValueError(
            f"{archive} does not fit into memory. Unpack it, and prepare the folder."
        ) from error
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        why = str(error).partition("\n")[0].rstrip(":.")  # one line per compression
        raise ValueError(
            f"{archive} is not a readable tar archive: {why}. Copy it again."
        ) from error
    return Tree(str(archive), sorted(content), content.__getitem__)


def _unite(trees: list[Tree]) -> Tree:
    """Several trees as one."""
    name = " and ".join(tree.name for tree in trees)
    owner = {path: tree for tree in trees for path in tree.files}
    files = sorted(path for tree in trees for path in tree.files)
    _check_distinct(files, name)
    return Tree(name, files, lambda path: owner[path].read(path))


def open_tree(source: Path) -> Tree:
    """Open a folder (together with zips in it), a zip or a tar."""
    if not source.exists():
        raise ValueError(f"Expected a folder, archive or file at {source}, got nothing there.")
    if source.is_dir():
        zips = sorted(path for path in source.glob("*.zip") if path.is_file())
        folder = open_folder(source)
        return _unite([folder, *map(_open_zip, zips)]) if zips else folder
    if source.suffix in (".zip", ".npz"):  # an npz is a zip of arrays
        return _open_zip(source)
    if source.name.endswith((".tar", ".tar.gz", ".tgz")):
        return _open_tar(source)
    raise ValueError(f"Expected a folder, a .zip or a .tar.gz, got {source}.")


def walk(folder: Path) -> Iterator[Path]:
    """Find all files below a folder; follow links, but visit each folder once.

    An unreadable folder raises ValueError.
    """
    seen = set()

    def fail(error: OSError) -> None:
        raise ValueError(f"The folder {error.filename} cannot be read: {error.strerror}.")

    for path, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        real = os.path.realpath(path)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (found for name in files if (found := Path(path) / name).is_file())


def _contents(archive: tarfile.TarFile, name: str) -> dict[str, bytes]:
    """Read all files of a tar; one that is too large raises ValueError before it is read."""
    content, total = {}, 0
    while (member := _read_header(archive.next)) is not None:
        _check_member(name, member.name, member.size)
        total += tarfile.BLOCKSIZE + member.size  # headers take memory too
        if total > MAX_TAR:
            raise ValueError(
                f"{name} unpacks to more than {MAX_TAR:,} bytes, which are kept in memory. If you "
                "trust its source, unpack it, and prepare the folder."
            )
        handle = archive.extractfile(member) if member.isfile() else None
        if handle is not None:
            content[member.name] = handle.read(member.size)  # else it takes twice the memory
    assert archive.fileobj is not None
    archive.fileobj.read(2**20)  # padding, so that the checksum after it is verified
    return content


def _read_header(read: Callable[[], T]) -> T:
    """Read headers of a tar, and raise ReadError for errors that tarfile does not translate."""
    try:
        return read()
    except ValueError as error:  # a header whose numbers cannot be read
        raise tarfile.ReadError(f"a damaged header, {error}") from error


def _check_distinct(files: list[str], name: str) -> None:
    for one, other in pairwise(files):
        if one == other:
            raise ValueError(f"Expected every file once in {name}, got {one} twice.")


def _is_hidden(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)


def _check_member(archive: str, name: str, size: int) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name.partition("/")[0]:
        raise ValueError(
            f"{archive} has a member that leads out of it, {name!r}. Such archives are not read; "
            "get it from a source you trust."
        )
    _check_size(archive, name, size)


def _check_size(where: str, name: str, size: int) -> None:
    limit = MAX_PICTURE if name.lower().endswith(PICTURES) else MAX_FILE
    if size > limit:
        raise ValueError(
            f"{where}: expected at most {limit:,} bytes in a file, got {size:,} in {name!r}. Such "
            "files are not read; remove it, or get it from a source you trust."
        )
