"""`varscale ls`: what there is to choose from."""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table

from varscale.backbones import BACKBONES
from varscale.cli.parser import Parser, command
from varscale.core.registry import Registry
from varscale.hosts import HOSTS
from varscale.model.presets import PRESETS
from varscale.runs.config_files import shipped_configs
from varscale.scalers import SCALERS


def parser() -> Parser:
    """Options of the command."""
    return command("List hosts, scalers, backbones, presets and configs.", "varscale ls --json")


def run(args: Namespace) -> None:
    """Print the registered members with their first line and their options."""
    families: tuple[Registry[Any], ...] = (HOSTS, SCALERS, BACKBONES)
    listing: dict[str, dict[str, dict[str, Any]]] = {
        f"{registry.kind}s": {
            name: {"summary": _first_line(registry[name]), "options": _options(registry, name)}
            for name in registry
        }
        for registry in families
    }
    listing["presets"] = {
        name: {"summary": preset.summary, "options": {}} for name, preset in PRESETS.items()
    }
    folder = shipped_configs()
    listing["configs"] = {
        path.relative_to(folder).as_posix(): {"summary": _title(path), "options": {}}
        for path in sorted(folder.rglob("*.yaml"))
    }
    if args.json:
        sys.stdout.write(json.dumps(listing) + "\n")
        return
    console = Console(highlight=False)
    for family, members in listing.items():
        title = f"configs, in {folder}" if family == "configs" else family
        table = Table("name", "what it is", "options", title=title, title_justify="left")
        for name, entry in members.items():
            options = (f"{key}={value}" for key, value in entry["options"].items())
            table.add_row(name, entry["summary"], ", ".join(options))
        console.print(table)


def _options(registry: Registry[Any], name: str) -> dict[str, Any]:
    """Options that `create` does not fill in, with their defaults."""
    filled = {"hosts": ("backbone", "metric"), "scalers": ("dim",)}.get(f"{registry.kind}s", ())
    return {
        option: None if p.default is p.empty else p.default
        for option, p in registry.options(name).items()
        if option not in filled
    }


def _title(config: Path) -> str:
    return config.read_text().partition("\n")[0].lstrip("# ")


def _first_line(member: type) -> str:
    return (inspect.getdoc(member) or "").partition("\n")[0]
