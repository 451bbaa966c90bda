"""`varscale ls`: list what can be chosen, by the names that other commands take."""

import inspect
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from jsonargparse import Namespace

from varscale.backbones import BACKBONES
from varscale.cli.parser import Parser, command
from varscale.core.registry import Registry, unknown
from varscale.data.readers import READERS
from varscale.data.readers.base import counts
from varscale.data.store import data_root, list_prepared, read_manifest
from varscale.hosts import HOSTS
from varscale.model import PRESETS
from varscale.model.presets import Preset
from varscale.runs.config_files import shipped_configs
from varscale.scalers import SCALERS

Members = dict[str, dict[str, Any]]
"""Summary and options by name."""

USE = {
    "scalers": "varscale train --scaler svs --scaler_options.init 10",
    "hosts": "varscale train --host matching --host_options.kappa 1",
    "backbones": "varscale train --backbone conv4 --backbone_options.filters 32",
    "presets": "varscale train --preset paper",
    "configs": "varscale train --config glyphs/svs",
    "datasets": "varscale train --dataset glyphs",
}
"""How a name of each family is used."""


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "List what can be chosen, by name: an overview, or one family with summaries and options.",
        "varscale ls scalers",
    )
    families = ", ".join(USE)
    parser.add_argument("family", type=str | None, nargs="?", default=None, help=families)
    return parser


def run(args: Namespace) -> None:
    """Print an overview of all families, or the members of one."""
    if args.family not in (None, *USE):
        raise unknown("family", args.family, USE)
    families = USE if args.family is None else (args.family,)
    listing = {family: FAMILIES[family]() for family in families}
    if args.json:
        sys.stdout.write(json.dumps(listing) + "\n")
        return
    width = min(shutil.get_terminal_size().columns, 100)
    show = _overview if args.family is None else _details
    for family, members in listing.items():
        sys.stdout.write("\n".join(show(family, members, width)) + "\n\n")
    if args.family is None:
        sys.stdout.write("varscale ls FAMILY shows summaries and options: varscale ls scalers\n")


def _overview(family: str, members: Members, width: int) -> list[str]:
    return [f"{family} ({len(members)})", *_wrap(", ".join(members), width, 2)]


def _details(family: str, members: Members, width: int) -> list[str]:
    lines, label = [], "sets" if family == "presets" else "options"
    for name, entry in members.items():
        options = entry["options"].items()
        shown = ", ".join(key if value is None else f"{key}={value}" for key, value in options)
        lines += [name, *_wrap(entry["summary"], width, 4)]
        lines += _wrap(f"{label}: {shown}", width, 4) if shown else []
    if any(None in entry["options"].values() for entry in members.values()):
        lines += ["", "The default of an option without a value depends on the others."]
    return [*lines, "", f"Example: {USE[family]}"]


def _wrap(text: str, width: int, indent: int) -> list[str]:
    """Lines of a text, with names whole even if they are longer than a line."""
    space = " " * indent
    return textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=space,
        subsequent_indent=space,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _members(registry: Registry[Any], *filled: str) -> Callable[[], Members]:
    """List the members of a registry, without the options that are `filled` in for them."""
    return lambda: {
        name: {
            "summary": _first_line(registry[name]),
            "options": {
                option: None if p.default is p.empty else p.default
                for option, p in registry.options(name).items()
                if option not in filled
            },
        }
        for name in registry
    }


def _presets() -> Members:
    return {
        name: {"summary": preset.summary, "options": _settings(preset)}
        for name, preset in PRESETS.items()
    }


def _settings(preset: Preset) -> dict[str, Any]:
    """What a preset sets, by dotted names."""
    found: dict[str, Any] = {}
    for part, options in vars(preset).items():
        if isinstance(options, Mapping):
            for key, value in options.items():
                inner = value.items() if isinstance(value, Mapping) else [(None, value)]
                found |= {".".join(filter(None, (part, key, k))): v for k, v in inner}
    return found


def _configs() -> Members:
    folder = shipped_configs()
    return {
        path.relative_to(folder).with_suffix("").as_posix(): {
            "summary": path.read_text().partition("\n")[0].lstrip("# "),
            "options": {},
        }
        for path in sorted(folder.rglob("*.yaml"))
    }


def _datasets() -> Members:
    """Prepared datasets, and glyphs, which is drawn on first use."""
    found = {"glyphs": {"summary": _first_line(READERS["glyphs"]), "options": {}}}
    for name in list_prepared(data_root()):
        try:
            manifest = read_manifest(data_root(), name)
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            continue
        items, *shape = manifest.shape
        size = "x".join(map(str, shape))
        classes = f"{counts(manifest.class_split)} classes (train/val/test)"
        found[name] = {"summary": f"{items:,} {manifest.kind} of {size}, {classes}.", "options": {}}
    return found


def _first_line(member: type) -> str:
    return (inspect.getdoc(member) or "").partition("\n")[0]


FAMILIES: dict[str, Callable[[], Members]] = {
    "scalers": _members(SCALERS, "dim"),
    "hosts": _members(HOSTS, "backbone", "metric"),
    "backbones": _members(BACKBONES),
    "presets": _presets,
    "configs": _configs,
    "datasets": _datasets,
}
