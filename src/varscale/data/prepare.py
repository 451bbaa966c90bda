"""Prepare a dataset: read files on disk and store them in one format."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from varscale.data.embeddings import OPTIONS, SUFFIXES, read_embeddings
from varscale.data.images import decode
from varscale.data.readers import READERS, Reader, ReaderOptions
from varscale.data.readers.base import check_classes
from varscale.data.split import SPLITS, check_two
from varscale.data.store import ITEMS, Manifest, check_quickly, data_root, finish, open_stage
from varscale.data.tree import open_tree, walk

Progress = Callable[[int, int], None]
"""Function of the number of finished items and the number of all items."""


def prepare(
    name: str,
    source: Path,
    options: ReaderOptions | None = None,
    *,
    form: str | None = None,
    root: Path | None = None,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Read a source and store it as the dataset `name`.

    An existing dataset of that name stays in place until the new one is complete.

    Args:
        name: Name of the dataset. The name of a known format chooses that format.
        source: Folder, archive or file.
        options: How to read and store it.
        form: Format, if neither name nor source tells it.
        root: Folder of all prepared datasets.
        progress: See `Progress`.
    """
    options = ReaderOptions() if options is None else options
    root = data_root() if root is None else root
    if options.size is not None and not 1 <= options.size <= 1024:
        raise ValueError(f"Expected an image size from 1 to 1024, got {options.size}.")
    form = form or detect(name, source)
    _check_options(options, form)
    there = (root / name).resolve()
    if there == source.resolve() or there in source.resolve().parents:
        raise ValueError(f"The source {source} is where the dataset would be. Move it away.")
    request = _request(source, options, form)
    with open_stage(root, name) as stage, _explain_full_disk(root):
        if form == "embeddings":
            items, labels, classes = read_embeddings(source, options.split, options.seed)
            np.save(stage / ITEMS, items)
            skipped: list[str] = []
        else:
            reader = READERS.create(form)
            labels, classes, skipped = _write_images(stage, source, reader, options, progress)
        check_two((name for name, _ in classes), source)  # skipping may empty a class
        origin = str(source.resolve())
        return finish(stage, name, labels, classes, source=origin, options=request, skipped=skipped)


def find_prepared(
    name: str,
    source: Path,
    options: ReaderOptions,
    *,
    form: str | None = None,
    root: Path | None = None,
) -> Manifest | None:
    """Manifest of an intact dataset that the same source and options made, or `None`."""
    try:
        there = check_quickly(data_root() if root is None else root, name)
    except ValueError:
        return None
    request = _request(source, options, form or detect(name, source))
    return there if (there.source, there.options) == (str(source.resolve()), request) else None


def _request(source: Path, options: ReaderOptions, form: str) -> dict[str, object]:
    return {**asdict(options), "format": form, "fingerprint": fingerprint(source)}


def fingerprint(source: Path) -> str:
    """Hash of the names, sizes and modification times of all files of a source."""
    source = source.resolve()
    beside = [source.with_name("labels.npy")] if source.suffix == ".npy" else []
    files = sorted(walk(source)) if source.is_dir() else [source, *beside]
    digest = hashlib.sha256()
    for path in files:
        state = path.stat() if path.is_file() else None
        stamp = (state.st_size, state.st_mtime_ns) if state else None
        digest.update(os.fsencode(path) + f"\0{stamp}\n".encode())
    return digest.hexdigest()


def _check_options(options: ReaderOptions, form: str) -> None:
    """Raise ValueError if an option does not apply to the format."""
    known = OPTIONS if form == "embeddings" else READERS[form].options
    for option in fields(ReaderOptions):
        if option.name not in known and getattr(options, option.name) != option.default:
            raise ValueError(
                f"The option {option.name!r} does not apply to the format {form!r}, which takes "
                f"{', '.join(known)}. Leave it out."
            )


def detect(name: str, source: Path) -> str:
    """Format of a source: by the name of the dataset, else by the source itself."""
    if name in READERS and name != "folder":
        return name
    if source.suffix in SUFFIXES:
        return "embeddings"
    listed = open_tree(source).find("train.csv", "mini-imagenet-cache-train.pkl")
    return "miniimagenet" if listed else "folder"


def _write_images(
    stage: Path, source: Path, reader: Reader, options: ReaderOptions, progress: Progress
) -> tuple[np.ndarray, list[tuple[str, str]], list[str]]:
    """Write the images; return labels, name and split of each class, and what was left out."""
    tree = reader.open(source)
    try:
        records = reader.records(tree, options)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{source} does not follow its format: {error!r}.") from error
    check_classes(records, str(source))
    # The order depends only on names, not on how the source was packed.
    records.sort(key=lambda r: (SPLITS.index(r.split), r.class_name, r.key))
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

    failures = []
    pool = ThreadPoolExecutor(os.cpu_count())  # Pillow releases the GIL
    try:
        for failure in pool.map(work, range(len(records))):
            failures.append(failure)
            progress(len(failures), len(records))
    finally:
        pool.shutdown(cancel_futures=True)
    good = np.flatnonzero([failure is None for failure in failures])
    skipped = [failure for failure in failures if failure is not None]
    items.flush()
    if skipped:
        if not len(good):
            raise ValueError(f"None of the {len(records)} images can be read: {skipped[0]}")
        kept = items[good]
        del items
        np.save(stage / ITEMS, kept)
    pairs = [(records[row].class_name, records[row].split) for row in good]
    classes = list(dict.fromkeys(pairs))
    numbers = {pair: number for number, pair in enumerate(classes)}
    labels = np.array([numbers[pair] for pair in pairs], dtype=np.int64)
    return labels, classes, skipped


def _reserve(path: Path) -> None:
    """Allocate disk space now, so that a full disk is an error here and not a crash later."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


@contextmanager
def _explain_full_disk(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(
                f"No space left for the dataset in {root}. Make room, or set VARSCALE_HOME to a "
                "larger disk; existing datasets are unchanged."
            ) from error
        raise
