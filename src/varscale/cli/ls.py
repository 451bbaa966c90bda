"""`varscale ls`: list what can be chosen, by the names that other commands take."""

import inspect
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonargparse import Namespace

from varscale.backbones import BACKBONES
from varscale.cli.data import prepared
from varscale.cli.output import reply
from varscale.cli.parser import IMPORT, command, import_given, option
from varscale.core.registry import Registry, unknown
from varscale.data.readers import READERS
from varscale.data.readers.base import counts
from varscale.hosts import HOSTS
from varscale.items.embedders import EMBEDDERS
from varscale.model import PRESETS
from varscale.runs.config_files import shipped_configs
from varscale.scalers import SCALERS

Member = tuple[str, str, dict[str, Any]]
"""Name, summary and options."""
Members = dict[str, dict[str, Any]]
"""Summary and options by name."""


def _details(family: str, members: Members) -> list[str]:
    lines, label = [], "sets" if family == "presets" else "options"
    for name, entry in members.items():
        options = entry["options"].items()
        shown = ", ".join(key if value is None else f"{key}={value}" for key, value in options)
        lines += [name, *_wrap(entry["summary"], 4)]
        lines += _wrap(f"{label}: {shown}", 4) if shown else []
    if any(None in entry["options"].values() for entry in members.values()):
        lines += ["", "The default of an option without a value depends on the others."]
    command = "fit FOLDER model.safetensors" if family == "embedders" else "train"
    return [*lines, "", f"Example: varscale {command} {FAMILIES[family][1]}"]


def _wrap(text: str, indent: int) -> list[str]:
    """Lines of a text, with names whole even if they are longer than a line."""
    width, space = min(max(shutil.get_terminal_size().columns, 20), 100), " " * indent
    wrapper = textwrap.TextWrapper(width, space, space)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.wrap(text)


def _members(registry: Registry[Any], *filled: str) -> Iterator[Member]:
    """List the members of a registry, without the options that are `filled` in for them."""
    for name in registry:
        try:
            registry[name]
        except ValueError as error:  # of somebody else's package
            yield name, str(error), {}
            continue
        given = {key: p.default for key, p in registry.options(name).items() if key not in filled}
        options = {key: None if v is inspect.Parameter.empty else v for key, v in given.items()}
        yield name, _first_line(registry[name]), options


def _embedders() -> Iterator[Member]:
    """List embedders as they are written: the name, then after a colon what it needs."""
    for name in EMBEDDERS:
        needs = EMBEDDERS[name].needs
        yield (f"{name}:{needs}" if needs else name), _first_line(EMBEDDERS[name]), {}


def _presets() -> Iterator[Member]:
    """List presets, with what they set by dotted names."""
    for name, preset in PRESETS.items():
        found: dict[str, Any] = {}
        for part, options in vars(preset).items():
            for key, value in options.items() if isinstance(options, Mapping) else ():
                inner = value.items() if isinstance(value, Mapping) else [(None, value)]
                found |= {".".join(filter(None, (part, key, k))): v for k, v in inner}
        yield name, preset.summary, found


def _configs() -> Iterator[Member]:
    folder = shipped_configs()
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        yield name, path.read_text().partition("\n")[0].lstrip("# "), {}


def _datasets() -> Iterator[Member]:
    """List prepared datasets, and glyphs, which is drawn on first use."""
    yield "glyphs", _first_line(READERS["glyphs"]), {}
    for m in prepared():
        items, *shape = m.shape
        size = "x".join(map(str, shape))
        classes = f"{counts(m.class_split)} classes (train/val/test)"
        yield m.name, f"{items:,} {m.kind} of {size}, {classes}.", {}


def _first_line(member: type) -> str:
    return (inspect.getdoc(member) or "").partition("\n")[0]


FAMILIES: dict[str, tuple[Callable[[], Iterator[Member]], str]] = {
    "scalers": (lambda: _members(SCALERS, "dim"), "--scaler d-svs"),
    "hosts": (
        lambda: _members(HOSTS, "backbone", "metric"),
        "--host matching --host_options.kappa 1",
    ),
    "backbones": (lambda: _members(BACKBONES), "--backbone conv4 --backbone_options.filters 32"),
    "embedders": (_embedders, "--embedder run:runs/svs"),
    "presets": (_presets, "--preset paper"),
    "configs": (_configs, "--config glyphs/svs"),
    "datasets": (_datasets, "--dataset glyphs"),
}
"""How to list the members of a family, and how to choose one."""


@command(
    "List what can be chosen, by name: an overview, or one family with summaries and options.",
    "varscale ls scalers",
    option("family", ", ".join(FAMILIES), nargs="?"),
    IMPORT,
)
def run(args: Namespace) -> None:
    """Print an overview of all families, or the members of one."""
    import_given(args)
    if args.family not in (None, *FAMILIES):
        raise unknown("family", args.family, FAMILIES)
    families = FAMILIES if args.family is None else (args.family,)
    listing: dict[str, Members] = {
        family: {name: {"summary": s, "options": o} for name, s, o in FAMILIES[family][0]()}
        for family in families
    }
    lines: list[str] = []
    for family, members in listing.items():
        short = [f"{family} ({len(members)})", *_wrap(", ".join(members), 2)]
        lines += [*(_details(family, members) if args.family else short), ""]
    if args.family is None:
        lines.append("varscale ls FAMILY shows summaries and options: varscale ls scalers")
    reply(args, listing, "\n".join(lines))
