"""Prepared datasets on disk: written completely or not at all, verified by hashes."""

import difflib
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from varscale.core.files import file_hash, sync
from varscale.core.home import home
from varscale.version import __version__

ITEMS, LABELS, MANIFEST = "items.npy", "labels.npy", "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """Description of a prepared dataset, and how it was made."""

    name: str
    kind: str  # images or embeddings
    shape: list[int]  # of the items array
    class_names: list[str]  # training classes first
    class_split: list[str]
    class_counts: list[int]
    source: str  # its path
    options: dict[str, Any]  # it was read with
    version: str  # of varscale that wrote it
    hash: str = ""  # of the content: items, labels, class names and splits, whatever their source
    files: dict[str, dict[str, Any]] = field(default_factory=dict)  # SHA-256, size and time of each
    skipped: list[str] = field(default_factory=list)  # messages about items that were left out
    format: int = FORMAT

    def content_hash(self) -> str:
        """Hash that the content should have."""
        content = [self.kind, self.shape, self.class_names, self.class_split, self.class_counts]
        files = [self.files[name]["sha256"] for name in (ITEMS, LABELS)]
        return hashlib.sha256(json.dumps([content, files]).encode()).hexdigest()


def data_root() -> Path:
    """Folder of prepared datasets: `$VARSCALE_HOME/data`, else in the user's cache."""
    return home() / "data"


def list_prepared(root: Path) -> list[str]:
    """Names of all prepared datasets in a folder."""
    return sorted(path.parent.name for path in root.glob(f"[!.]*/{MANIFEST}"))


def _not_prepared(root: Path, name: str) -> ValueError:
    """An error with the command that prepares the dataset."""
    from varscale.data.readers import READERS  # brings Pillow

    known = list_prepared(root)
    near = difflib.get_close_matches(name, [*known, "glyphs"], n=1, cutoff=0.7)
    form = name.rstrip("0123456789")
    source = name if Path(name).exists() else "SOURCE"
    sized = form != name and form in READERS  # such as miniimagenet32
    options = f" --format {form} --size {name[len(form) :]}" if sized else ""
    parts = [
        f"There is no prepared dataset {name!r} in {root}.",
        f"Prepared: {', '.join(known)}." if known else "",
        f"Did you mean {near[0]!r}?" if near and not sized else "",
        f"Prepare it: varscale data prepare {name} {source}{options}",
        "(SOURCE is a folder, archive or file of yours)" if source == "SOURCE" else "",
    ]
    return ValueError(" ".join(filter(None, parts)))


def read_manifest(root: Path, name: str) -> Manifest:
    """Read the manifest of a prepared dataset."""
    check_name(name)
    path = root / name / MANIFEST
    if not path.is_file():
        raise _not_prepared(root, name)
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise _damage(path, f"another version wrote it, in format {content['format']}")
        manifest = Manifest(**content)
        states = [{"sha256", "size", "mtime_ns"} <= set(f) for f in manifest.files.values()]
        intact = all(states) and manifest.content_hash() == manifest.hash
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise _damage(path, f"it lacks {error}") from error
    if not intact or manifest.name != name:
        raise _damage(path, "it has changed since it was written")
    return manifest


def check(root: Path, name: str) -> Manifest:
    """Read a prepared dataset completely; raise ValueError if a byte has changed."""
    manifest = read_manifest(root, name)
    for file, expected in manifest.files.items():
        path = root / name / file
        if not path.is_file() or file_hash(path) != expected["sha256"]:
            raise _damage(path, "its content has changed since it was written")
    return manifest


def check_quickly(root: Path, name: str) -> Manifest:
    """Compare only sizes and modification times; `check` the dataset if one has changed."""
    manifest = read_manifest(root, name)
    for file, expected in manifest.files.items():
        path = root / name / file
        if not path.is_file() or {**expected, **_stamp(path)} != expected:
            return check(root, name)
    return manifest


@contextmanager
def open_stage(root: Path, name: str) -> Iterator[Path]:
    """Give a folder to write a dataset into; on success it becomes the dataset.

    A lock lets one process at a time prepare a name. Leftovers of an interrupted process are
    removed; an existing dataset stays until the new one is complete.
    """
    from filelock import FileLock  # imported here to keep `import varscale` fast

    check_name(name)
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f".{name}.lock"):
        stage, old = root / f".{name}.new", root / f".{name}.old"
        if old.exists() and not (root / name).exists():  # killed between two renames
            old.rename(root / name)
        for left in (stage, old):
            shutil.rmtree(left, ignore_errors=True)
        there = root / name
        if there.is_symlink() or (there.exists() and not (there / MANIFEST).is_file()):
            raise ValueError(
                f"{there} exists and is not a prepared dataset, so it is not overwritten. Move it "
                "away, or choose another name."
            )
        stage.mkdir()
        try:
            yield stage
            if (root / name).exists():
                (root / name).rename(old)
            stage.rename(root / name)
            sync(root)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def check_name(name: str) -> None:
    """Raise ValueError if a name is not a plain file name."""
    if not re.fullmatch(r"(?!\.)[\w.-]{1,100}", name):
        raise ValueError(
            f"Expected a dataset name of letters, digits, '_', '-' and '.', got {name!r}."
        )


def finish(
    stage: Path,
    name: str,
    labels: np.ndarray,
    classes: list[tuple[str, str]],
    *,
    source: str,
    options: dict[str, Any],
    skipped: list[str],
) -> Manifest:
    """Write labels and manifest beside the items, with all hashes, and flush them to disk."""
    items = np.load(stage / ITEMS, mmap_mode="r")
    np.save(stage / LABELS, labels)
    files = {}
    for path in (stage / ITEMS, stage / LABELS):
        sync(path)
        files[path.name] = {"sha256": file_hash(path), **_stamp(path)}
    manifest = Manifest(
        name=name,
        kind="images" if items.ndim == 4 else "embeddings",
        shape=list(items.shape),
        class_names=[class_name for class_name, _ in classes],
        class_split=[split for _, split in classes],
        class_counts=np.bincount(labels, minlength=len(classes)).tolist(),
        source=source,
        options=options,
        version=__version__,
        files=files,
        skipped=skipped,
    )
    manifest = replace(manifest, hash=manifest.content_hash())
    (stage / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1))
    sync(stage / MANIFEST)
    sync(stage)
    return manifest


def _stamp(path: Path) -> dict[str, int]:
    state = path.stat()
    return {"size": state.st_size, "mtime_ns": state.st_mtime_ns}


def _damage(path: Path, why: str) -> ValueError:
    return ValueError(
        f"{path} is damaged: {why}. Prepare the dataset again: "
        f"varscale data prepare {path.parent.name} SOURCE --force."
    )
