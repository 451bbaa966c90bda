"""`varscale data`: list, prepare, check, show and download datasets."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table

from varscale.cli.parser import Parser, command
from varscale.cli.progress import Bar
from varscale.core.registry import unknown
from varscale.data import Dataset
from varscale.data.download import download
from varscale.data.prepare import find_prepared, prepare
from varscale.data.readers import READERS, ReaderOptions
from varscale.data.readers.base import counts
from varscale.data.readers.glyphs import font_folder
from varscale.data.sheet import contact_sheet
from varscale.data.store import Manifest, check, data_root, list_prepared, read_manifest


def _list_parser() -> Parser:
    return command("List the datasets that are prepared.", "varscale data list")


def _list(args: Namespace) -> None:
    manifests = []
    for name in list_prepared(data_root()):
        try:
            manifests.append(read_manifest(data_root(), name))
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
    if args.json:
        _print_json({m.name: _facts(m) for m in manifests})
        return
    table = Table("name", "kind", "items", "classes train/val/test", "item", "hash")
    for m in manifests:
        facts = _facts(m)
        item = "x".join(map(str, facts["item"]))
        table.add_row(m.name, m.kind, f"{facts['items']:,}", facts["classes"], item, m.hash[:12])
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"In {data_root()}. varscale draws glyphs itself on first use; it needs no source."
    )


def _prepare_parser() -> Parser:
    parser = command(
        "Turn images or embeddings on disk into a dataset that loads fast and can be verified.",
        "varscale data prepare miniimagenet miniimagenet.zip --size 32",
    )
    parser.add_argument(
        "name", type=str, help="name of the dataset; the name of a format also selects the format"
    )
    parser.add_argument(
        "source", type=str | None, default=None, nargs="?", help="folder, archive or file to read"
    )
    parser.add_argument(
        "--format",
        type=str | None,
        help=f"how to read it: embeddings, {', '.join(sorted(READERS))}; by default recognised",
    )
    parser.add_argument(
        "--force", action="store_true", help="prepare it again, even if nothing has changed"
    )
    parser.add_class_arguments(ReaderOptions, None)
    return parser


def _prepare(args: Namespace) -> None:
    if args.source is None and args.name != "glyphs":
        raise ValueError(
            f"Expected a source to prepare {args.name!r} from, got none. "
            f"Example: varscale data prepare {args.name} path/to/folder"
        )
    if args.format not in (None, "embeddings", *READERS):
        raise unknown("format", args.format, ("embeddings", *READERS))
    source = font_folder() if args.source is None else Path(args.source)
    options = ReaderOptions(**{name: args[name] for name in ReaderOptions.__dataclass_fields__})
    there = None if args.force else find_prepared(args.name, source, options, form=args.format)
    note = " (already prepared; --force prepares it again)" if there else ""
    with Bar(f"preparing {args.name}") as bar:
        manifest = there or prepare(args.name, source, options, form=args.format, progress=bar)
    for reason in manifest.skipped:
        sys.stderr.write(f"left out: {reason}\n")
    if args.json:
        _print_json({"name": manifest.name, **_facts(manifest), "skipped": manifest.skipped})
        return
    facts = _facts(manifest)
    item = "x".join(map(str, facts["item"]))
    what = "images" if manifest.kind == "images" else "embeddings"
    sys.stdout.write(
        f"{manifest.name}: {facts['items']:,} {what} of {item}, classes {facts['classes']} "
        f"(train/val/test), {len(manifest.skipped)} left out, hash {manifest.hash[:12]}{note}\n"
    )


def _check_parser() -> Parser:
    parser = command(
        "Verify every byte of a dataset against the hashes in its manifest.",
        "varscale data check miniimagenet",
    )
    parser.add_argument("name", type=str, help="name of the dataset")
    return parser


def _check(args: Namespace) -> None:
    manifest = check(data_root(), args.name)
    if args.json:
        _print_json({"name": manifest.name, "ok": True, **_facts(manifest)})
    else:
        sys.stdout.write(f"{manifest.name}: every byte is as written, hash {manifest.hash}\n")


def _show_parser() -> Parser:
    parser = command(
        "Draw a contact sheet of a dataset of images.",
        "varscale data show glyphs --out sheet.png",
    )
    parser.add_argument("name", type=str, help="name of the dataset")
    parser.add_argument(
        "--out", type=str, default="sheet.png", metavar="FILE", help="image to write"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed that selects classes and images")
    return parser


def _show(args: Namespace) -> None:
    sheet = contact_sheet(Dataset.open(args.name), seed=args.seed)
    try:
        sheet.save(args.out)
    except (OSError, ValueError) as error:
        raise ValueError(f"{args.out} cannot be written: {error}.") from error
    if args.json:
        _print_json({"out": args.out, "width": sheet.width, "height": sheet.height})
    else:
        sys.stdout.write(f"{args.out}: {sheet.width} x {sheet.height} pixels\n")


def _download_parser() -> Parser:
    parser = command(
        "Download a public dataset. No other command uses the network.",
        "varscale data download omniglot --out omniglot",
    )
    parser.add_argument("name", type=str, help="name of the dataset; only omniglot for now")
    parser.add_argument(
        "--out", type=str | None, metavar="FOLDER", help="folder to write to; by default NAME"
    )
    parser.add_argument(
        "--url", type=str | None, metavar="URL", help="a mirror with the same files"
    )
    return parser


def _download(args: Namespace) -> None:
    folder = download(args.name, Path(args.out or args.name), args.url)
    if args.json:
        _print_json({"name": args.name, "folder": str(folder)})
    else:
        sys.stdout.write(f"Now prepare it: varscale data prepare {args.name} {folder}\n")


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "kind": manifest.kind,
        "items": manifest.shape[0],
        "item": manifest.shape[1:],
        "classes": counts(manifest.class_split),
        "hash": manifest.hash,
        "source": manifest.source,
    }


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


ACTIONS: dict[str, tuple[Callable[[], Parser], Callable[[Namespace], None]]] = {
    "data list": (_list_parser, _list),
    "data prepare": (_prepare_parser, _prepare),
    "data check": (_check_parser, _check),
    "data show": (_show_parser, _show),
    "data download": (_download_parser, _download),
}
