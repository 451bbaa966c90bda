"""`varscale ls`: what there is to choose from."""

import inspect
import json
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.table import Table

from varscale.backbones import BACKBONES
from varscale.hosts import HOSTS
from varscale.presets import PRESETS
from varscale.registry import Registry
from varscale.scalers import SCALERS


def parser() -> ArgumentParser:
    """Options of the command."""
    parser = ArgumentParser(
        description="List hosts, scalers, backbones and presets.",
        epilog="Example: varscale ls --json",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: Namespace) -> None:
    """Print the registered members with their first line and their options."""
    families: tuple[Registry[Any], ...] = (HOSTS, SCALERS, BACKBONES)
    listing = {
        f"{registry.kind}s": {
            name: {"summary": _first_line(registry[name]), "options": registry.options(name)}
            for name in registry
        }
        for registry in families
    }
    listing["presets"] = {
        name: {"summary": preset.summary, "options": []} for name, preset in PRESETS.items()
    }
    console = Console(highlight=False)
    if args.json:
        console.file.write(json.dumps(listing) + "\n")
        return
    for family, members in listing.items():
        table = Table("name", "what it is", "options", title=family, title_justify="left")
        for name, entry in members.items():
            table.add_row(name, entry["summary"], ", ".join(entry["options"]))
        console.print(table)


def _first_line(member: type) -> str:
    return (inspect.getdoc(member) or "").partition("\n")[0]
