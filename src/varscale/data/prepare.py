"""From what people have on disk to a prepared dataset."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np

from varscale.data.embeddings import SUFFIXES, read_embeddings
from varscale.data.images import Record, decode
from varscale.data.readers import READERS, Options, Reader
from varscale.data.readers.base import check_classes
from varscale.data.split import SPLITS
from varscale.data.store import ITEMS, Manifest, check_quickly, data_root, finish, staged

Progress = Callable[[int, int], None]
"""Called with the number of items done and the number of all."""


def prepare(
    name: str,
    source: Path,
    options: Options | None = None,
    *,
    form: str | None = None,
    root: Path | None = None,
    force: bool = False,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Read a source and write it as the dataset `name`; what was there before stays until then.

    Args:
        name: Of the dataset. That of a known format chooses the format.
        source: Folder, archive or file.
        options: How to read and store.
        form: The format, where neither name nor source tell it.
        root: Where datasets live.
        force: Prepare again even if the same source and options made what is there.
        progress: See `Progress`.
    """
    options = Options() if options is None else options
    root = data_root() if root is None else root
    if options.size is not None and not 1 <= options.size <= 1024:
        raise ValueError(f"Expected an image size from 1 to 1024, got {options.size}.")
    form = form or detect(name, source)
    request = {**asdict(options), "format": form, "fingerprint": fingerprint(source)}
    with staged(root, name) as stage, _full_disk_in_words(root):
        if not force and (there := _same(root, name, source, request)):
            raise AlreadyPrepared(there)
        if form == "embeddings":
            return _prepare_embeddings(stage, name, source, options, request)
        reader = READERS.create(form)
        return _prepare_images(stage, name, source, reader, options, request, progress)


class AlreadyPrepared(Exception):  # noqa: N818 - good news, not an error
    """The same source and options made what is there.

    Attributes:
        manifest: What is there.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest.name)
        self.manifest = manifest


def fingerprint(source: Path) -> str:
    """Hash of the names, sizes and times of change of all files of a source."""
    files = sorted(source.rglob("*")) if source.is_dir() else [source] * source.is_file()
    digest = hashlib.sha256()
    for path in files:
        state = path.stat()
        digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def detect(name: str, source: Path) -> str:
    """The format of a source: by the dataset's name, else by what the source is."""
    if name in READERS and name != "folder":
        return name
    return "embeddings" if source.suffix in SUFFIXES else "folder"


def _prepare_images(
    stage: Path,
    name: str,
    source: Path,
    reader: Reader,
    options: Options,
    request: dict[str, object],
    progress: Progress,
) -> Manifest:
    records = reader.records(reader.open(source), options)
    check_classes(records, str(source))
    # The order depends on names alone, not on how the source was packed.
    order = {split: i for i, split in enumerate(SPLITS)}
    records.sort(key=lambda r: (order[r.split], r.class_name, r.key))
    size = reader.size if options.size is None else options.size
    grey = reader.grey if options.grey is None else options.grey
    shape = (len(records), size, size, 1 if grey else 3)
    items = np.lib.format.open_memmap(stage / ITEMS, mode="w+", dtype=np.uint8, shape=shape)
    _reserve(stage / ITEMS)

    def work(row: int) -> str | None:
        try:
            items[row] = decode(records[row], size, grey=grey, invert=reader.invert)
        except ValueError as error:
            if not options.skip_bad:
                raise
            return str(error)
        return None

    failures = list(_in_threads(work, len(records), progress))
    good = np.flatnonzero([failure is None for failure in failures])
    skipped = [failure for failure in failures if failure is not None]
    items.flush()
    if skipped:
        if not len(good):
            raise ValueError(f"None of the {len(records)} images can be read: {skipped[0]}")
        kept = items[good]
        del items
        np.save(stage / ITEMS, kept)
    return _write(stage, name, "images", [records[row] for row in good], skipped, source, request)


def _reserve(path: Path) -> None:
    """Take the space at once: a full disk is an error now, not a crash in the middle."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _in_threads(
    work: Callable[[int], str | None], total: int, progress: Progress
) -> Iterator[str | None]:
    """Do the work for each row on all cores (Pillow lets go of the interpreter), in order."""
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for done, result in enumerate(pool.map(work, range(total)), start=1):
            progress(done, total)
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def _write(
    stage: Path,
    name: str,
    kind: str,
    records: Iterable[Record],
    skipped: list[str],
    source: Path,
    request: dict[str, object],
) -> Manifest:
    pairs = [(record.class_name, record.split) for record in records]
    classes = list(dict.fromkeys(pairs))
    numbers = {pair: number for number, pair in enumerate(classes)}
    labels = np.array([numbers[pair] for pair in pairs], dtype=np.int64)
    return finish(
        stage, _manifest(stage, name, kind, classes, labels, source, request, skipped), labels
    )


def _prepare_embeddings(
    stage: Path, name: str, source: Path, options: Options, request: dict[str, object]
) -> Manifest:
    data = read_embeddings(source, options.split, options.seed)
    order = {split: i for i, split in enumerate(SPLITS)}
    by_name = sorted(
        set(data.labels.tolist()), key=lambda c: (order[data.class_split[c]], data.class_names[c])
    )
    rank = np.full(len(data.class_names), -1)
    rank[by_name] = np.arange(len(by_name))
    labels = rank[data.labels]
    rows = np.argsort(labels, kind="stable")
    np.save(stage / ITEMS, data.items[rows])
    classes = [(data.class_names[c], data.class_split[c]) for c in by_name]
    manifest = _manifest(stage, name, "embeddings", classes, labels[rows], source, request, [])
    return finish(stage, manifest, labels[rows])


def _manifest(
    stage: Path,
    name: str,
    kind: str,
    classes: list[tuple[str, str]],
    labels: np.ndarray,
    source: Path,
    request: dict[str, object],
    skipped: list[str],
) -> Manifest:
    from varscale import __version__

    return Manifest(
        name=name,
        kind=kind,
        shape=list(np.load(stage / ITEMS, mmap_mode="r").shape),
        class_names=[class_name for class_name, _ in classes],
        class_split=[split for _, split in classes],
        class_counts=np.bincount(labels, minlength=len(classes)).tolist(),
        source=str(source.resolve()),
        options=request,
        skipped=skipped,
        version=__version__,
    )


def _same(root: Path, name: str, source: Path, request: dict[str, object]) -> Manifest | None:
    """What is there, if the same request made it and it is whole."""
    try:
        there = check_quickly(root, name)
    except ValueError:
        return None
    return there if (there.source, there.options) == (str(source.resolve()), request) else None


@contextmanager
def _full_disk_in_words(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(
                f"No space left for the dataset in {root}. Make room, or set VARSCALE_HOME to a "
                "larger disk; what was there before is untouched."
            ) from error
        raise
