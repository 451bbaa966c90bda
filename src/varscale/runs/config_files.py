"""Configs as YAML files; the key `base` names the file that one builds on, relative to it."""

import difflib
from dataclasses import fields
from pathlib import Path
from typing import Any

from varscale.core.registry import unknown
from varscale.runs.config import TrainConfig


def shipped_configs() -> Path:
    """Find the folder of configs that come with varscale."""
    package = Path(__file__).parents[1]
    inside = package / "configs"  # where a wheel has them
    return inside if inside.is_dir() else package.parents[1] / "configs"


def read_config(path: Path) -> TrainConfig:
    """Read a config from a YAML file; its keys replace those of the file it builds on."""
    values: dict[str, Any] = {}
    for file in reversed(chain(path)):
        values |= _read(file)
    values.pop("base", None)
    known = [f.name for f in fields(TrainConfig)]
    for key in values:
        if key not in known:
            raise unknown(f"key in {path}:", key, known)
    return TrainConfig(**values)


def chain(path: Path) -> list[Path]:
    """List a YAML file, the file it builds on, and so on."""
    files = [path]
    while (base := _read(files[-1]).get("base")) is not None:
        if not isinstance(base, str):
            raise ValueError(f"Expected the name of a file as base in {files[-1]}, got {base!r}.")
        files.append((files[-1].parent / base).resolve())
        if not files[-1].is_file():
            raise ValueError(f"There is no config {files[-1]}, on which {files[-2]} builds (base).")
        if files[-1] in files[:-1]:
            raise ValueError(f"{path} builds on itself, by way of {files[-1]}.")
    return files


def find_config(name: str) -> Path:
    """The file called `name`, or else the config of that name that comes with varscale."""
    path, shipped = Path(name), shipped_configs()
    places = [path, shipped / path, shipped / f"{name}.yaml"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        known = [p.relative_to(shipped).with_suffix("").as_posix() for p in shipped.rglob("*.yaml")]
        close = difflib.get_close_matches(name.removesuffix(".yaml"), known, n=1, cutoff=0.6)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"There is no config {name!r}. {hint}varscale ls configs lists them.")
    return found


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = dict(yaml.safe_load(path.read_text()))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ValueError(f"There is no config {path}.") from error
    except (yaml.YAMLError, TypeError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" Look at line {mark.line + 1}, column {mark.column + 1}." if mark else ""
        raise ValueError(f"{path} is not a YAML file of keys and values.{where}") from error
    return values
