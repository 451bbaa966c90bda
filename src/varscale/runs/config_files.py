"""Configs as YAML files, one of which may build on another."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from varscale.runs.config import TrainConfig
from varscale.core.registry import unknown

BASE = "base"
"""Key of the file that a file builds on, relative to it."""


def shipped_configs() -> Path:
    """The folder of the configs that come with varscale."""
    package = Path(__file__).parents[1]
    inside = package / "configs"  # where a wheel has them
    return inside if inside.is_dir() else package.parents[1] / "configs"


def read_config(path: Path) -> TrainConfig:
    """A config from a YAML file; a key replaces that of the file it builds on."""
    values: dict[str, Any] = {}
    for file in reversed(chain(path)):
        values |= _read(file)
    values.pop(BASE, None)
    known = [f.name for f in fields(TrainConfig)]
    for key in values:
        if key not in known:
            raise unknown(f"key in {path}:", key, known)
    return TrainConfig(**values)


def chain(path: Path) -> list[Path]:
    """A YAML file, the one it builds on, and so on."""
    files = [path]
    while (base := _read(files[-1]).get(BASE)) is not None:
        if not isinstance(base, str):
            raise ValueError(f"Expected the name of a file as base in {files[-1]}, got {base!r}.")
        files.append((files[-1].parent / base).resolve())
        if files[-1] in files[:-1]:
            raise ValueError(f"{path} builds on itself, by way of {files[-1]}.")
    return files


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = dict(yaml.safe_load(path.read_text()))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ValueError(f"There is no config {path}.") from error
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no YAML file of keys and values.") from error
    return values
