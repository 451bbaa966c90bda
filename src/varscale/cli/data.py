"""`varscale data`: list, prepare, check, show and download datasets."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from PIL.PngImagePlugin import PngInfo
from rich.table import Table

from varscale.cli.output import reply
from varscale.cli.parser import IMPORT, command, import_given, option, take
from varscale.cli.progress import Bar
from varscale.core.files import check_target, is_our_png, write_whole
from varscale.core.registry import unknown
from varscale.data import Dataset
from varscale.data.download import download
from varscale.data.prepare import find_prepared, prepare
from varscale.data.readers import READERS, ReaderOptions
from varscale.data.readers.base import counts
from varscale.data.readers.glyphs import font_folder
from varscale.data.sheet import contact_sheet
from varscale.data.store import Manifest, check, data_root, list_prepared, read_manifest


def prepared() -> Iterator[Manifest]:
    """Read the manifests of the prepared datasets; complain of those that cannot be read."""
    for name in list_prepared(data_root()):
        try:
            yield read_manifest(data_root(), name)
        except ValueError as error:
            sys.stderr.write(f"{error}\n")


@command("List the datasets that are prepared.", "varscale data list")
def _list(args: Namespace) -> None:
    manifests = list(prepared())
    table = Table("name", "kind", "items", "classes train/val/test", "item", "hash")
    for m in manifests:
        items, *shape = m.shape
        item = "x".join(map(str, shape))
        table.add_row(m.name, m.kind, f"{items:,}", counts(m.class_split), item, m.hash[:12])
    note = f"In {data_root()}. varscale draws glyphs itself on first use; it needs no source."
    reply(args, {m.name: _facts(m) for m in manifests}, [table, note])


@command(
    "Turn images or embeddings on disk into a dataset that loads fast and can be verified.",
    "varscale data prepare miniimagenet miniimagenet.zip --size 32",
    option("name", "name of the dataset; the name of a format also selects the format"),
    option("source", "folder, archive or file to read", nargs="?"),
    option(
        "--format",
        f"how to read it: embeddings, {', '.join(sorted(READERS))}; by default recognised",
    ),
    option(
        "--force",
        "prepare it again, even if nothing has changed, or from another source",
        action="store_true",
    ),
    IMPORT,
    ReaderOptions,
)
def _prepare(args: Namespace) -> None:
    import_given(args)
    if args.source is None and args.name != "glyphs":
        raise ValueError(
            f"Expected a source to prepare {args.name!r} from, got none. "
            f"Example: varscale data prepare {args.name} path/to/folder"
        )
    if args.format not in (None, "embeddings", *READERS):
        raise unknown("format", args.format, ("embeddings", *READERS))
    source = font_folder() if args.source is None else Path(args.source)
    options = take(args, ReaderOptions)
    if args.source is not None and not args.force:
        _check_source(args.name, source)
    there = None if args.force else find_prepared(args.name, source, options, form=args.format)
    note = " (already prepared; --force prepares it again)" if there else ""
    with Bar(f"preparing {args.name}") as bar:
        manifest = there or prepare(args.name, source, options, form=args.format, progress=bar)
    for reason in manifest.skipped:
        sys.stderr.write(f"left out: {reason}\n")
    report = {"name": manifest.name, **_facts(manifest), "skipped": manifest.skipped}
    item = "x".join(map(str, report["item"]))
    what = "images" if manifest.kind == "images" else "embeddings"
    shown = (
        f"{manifest.name}: {report['items']:,} {what} of {item}, classes {report['classes']} "
        f"(train/val/test), {len(manifest.skipped)} left out, hash {manifest.hash[:12]}{note}"
    )
    few = {name: manifest.class_split.count(name) for name in ("val", "test")}
    if lacking := [f"{n} {name}" for name, n in few.items() if n < 2]:
        shown += (
            f"\nWith {' and '.join(lacking)} classes no tasks can be drawn there: a task needs "
            "two. More classes or other shares (--split) give more."
        )
    reply(args, report, shown)


def _check_source(name: str, source: Path) -> None:
    """Raise ValueError if a dataset of this name was prepared from another source."""
    if name not in list_prepared(data_root()):
        return
    try:
        there = read_manifest(data_root(), name)
    except ValueError:
        return  # it is damaged, so it may be replaced
    if there.source != str(source.resolve()):
        raise ValueError(
            f"{name!r} is a dataset of {there.shape[0]:,} items from {there.source}. Choose "
            "another name, or replace it with --force; runs on it then stop."
        )


@command(
    "Verify every byte of a dataset against the hashes in its manifest.",
    "varscale data check miniimagenet",
    option("name", "name of the dataset"),
)
def _check(args: Namespace) -> None:
    manifest = check(data_root(), args.name)
    shown = f"{manifest.name}: every byte is as written, hash {manifest.hash}"
    reply(args, {"name": manifest.name, "ok": True, **_facts(manifest)}, shown)


@command(
    "Draw a contact sheet of a dataset of images.",
    "varscale data show glyphs --out sheet.png",
    option("name", "name of the dataset"),
    option("--out FILE", "PNG file to write", default="sheet.png"),
    option("--seed", "seed that selects classes and images", default=0),
)
def _show(args: Namespace) -> None:
    path = Path(args.out)
    if path.suffix.lower() != ".png":
        raise ValueError(f"Expected a file name ending in .png, got {path}.")
    check_target(path, "a sheet", is_our_png)
    sheet = contact_sheet(Dataset.open(args.name), seed=args.seed)
    buffer, about = io.BytesIO(), PngInfo()
    about.add_text("Software", "varscale")
    sheet.save(buffer, format="PNG", pnginfo=about)
    write_whole(path, buffer.getvalue())
    shown = f"{args.out}: {sheet.width} x {sheet.height} pixels"
    reply(args, {"out": args.out, "width": sheet.width, "height": sheet.height}, shown)


@command(
    "Download a public dataset. No other command uses the network.",
    "varscale data download omniglot --out omniglot",
    option("name", "name of the dataset; only omniglot for now"),
    option("--out FOLDER", "folder to write to; by default NAME"),
    option("--url URL", "a mirror with the same files"),
)
def _download(args: Namespace) -> None:
    folder = download(args.name, Path(args.out or args.name), args.url)
    shown = f"Now prepare it: varscale data prepare {args.name} {folder}"
    reply(args, {"name": args.name, "folder": str(folder)}, shown)


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "kind": manifest.kind,
        "items": manifest.shape[0],
        "item": manifest.shape[1:],
        "classes": counts(manifest.class_split),
        "hash": manifest.hash,
        "source": manifest.source,
    }
