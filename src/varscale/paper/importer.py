"""Take over the rows of another folder of results, of today's layout or the one before.

The layout before had an npz file for each row in a folder for each size, a column `scale` for the
size, cells named after config files, and hashes of the values that were not at their defaults. A
row whose old hash is that of its cell gets today's; any other keeps its own and stays out of date.
"""

import csv
import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from varscale.core.precision import Precision
from varscale.data import Dataset
from varscale.paper.reproduce import Job
from varscale.paper.results import FLOAT32, Arrays, Results, Row, parse_row, unpack
from varscale.paper.sizes import SizeName
from varscale.runs import TrainConfig
from varscale.runs.config import resolve


def take(results: Results, folder: Path) -> int:
    """Add the rows of another folder, with their arrays, that are not here; return how many.

    A row that is here already stays, unless it was made before rows named their commit.
    """
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise ValueError(f"Expected a folder of results, got {folder}: no CSV file.")
    theirs = Results(folder)
    new: list[tuple[Row, Arrays]] = []
    for file in files:
        here = {row.key: row.commit for row in results.rows(file.stem)}
        with file.open(newline="") as lines:
            reader = csv.DictReader(lines)
            is_old = "scale" in (reader.fieldnames or ())
            rows = [_read(file, line) for line in reader] if is_old else theirs.rows(file.stem)
        for row in rows:
            if row.key not in here or (row.commit and not here[row.key]):
                pair = (_rehash(row), _arrays(folder, row)) if is_old else (row, theirs.arrays(row))
                new.append(pair)
    results.add_all(new)
    return len(new)


def _read(file: Path, line: dict[str, str]) -> Row:
    """A row of the layout before; the first ones had neither precision nor commit."""
    try:
        cell = line["config"].removeprefix("miniimagenet/").replace("/", "_")
        values = {"precision": FLOAT32, "commit": "", **line, "cell": cell, "size": line["scale"]}
        return parse_row(values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} has a row that cannot be read: {error!r}.") from error


def _arrays(folder: Path, row: Row) -> Arrays:
    dataset = "omniglot." if row.cell.startswith("omniglot_") else "miniimagenet."
    path = folder / row.size / (dataset + row.file.removeprefix("omniglot_"))
    try:
        return unpack(path.read_bytes())
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path}, the arrays of a row, is missing or damaged.") from error


def _rehash(row: Row) -> Row:
    """Today's hash for a row whose old one is that of its cell."""
    size, precision = cast("SizeName", row.size), cast("Precision", row.precision)
    job = Job(row.cell, size, 0, row.dataset, precision)
    config, given = _resolve(job, row.item)
    config = replace(config, seed=row.seed)
    is_current = old_hash(config, given) == row.config_hash
    return replace(row, config_hash=config.hash) if is_current else row


@cache
def _resolve(job: Job, item: str) -> tuple[TrainConfig, tuple[str, ...]]:
    """The config of a job, and the options of its scaler that were not at their defaults."""
    dataset, planned = stand_in(job.planned.dataset, item), job.planned
    if not dataset.is_images:
        planned = replace(planned, backbone="identity", backbone_options={})
    config, plain = job.resolve(dataset), resolve(planned, dataset).scaler_options
    changed = {name for name, value in config.scaler_options.items() if value != plain[name]}
    counted = set() if plain.get("effective_tasks") is None else {"effective_tasks"}
    return config, tuple(changed | counted | set(job.planned.scaler_options))


def stand_in(name: str, item: str) -> Dataset:
    """A dataset of zeros, of which a config sees no more than the shape of its items."""
    shape = tuple(map(int, item.split("x")))
    splits = [split for split in ("train", "val", "test") for _ in range(64)]
    labels = np.repeat(np.arange(len(splits)), 64)
    zero = np.zeros((), dtype=np.uint8 if len(shape) == 3 else np.float32)
    items = np.broadcast_to(zero, (len(labels), *shape))
    return Dataset(name, items, labels, tuple(map(str, range(len(splits)))), tuple(splits), "")


def old_hash(config: TrainConfig, given: Collection[str]) -> str:
    """The hash that a resolved config had: without what was at its default, by its old names.

    Args:
        config: The config.
        given: Options of its scaler that were not at their defaults.
    """
    content = asdict(config)
    content["preset"] = content["preset"].replace("reproduction", "default")
    options = {_OLD_NAMES.get(name, name): content["scaler_options"][name] for name in given}
    if content.pop("shot_offset") is not None:
        options["shot_offset"] = config.shot_offset
    content["scaler_options"] = options
    kept = {
        name: content[name]
        for name, default in _OLD_DEFAULTS.items()
        if content[name] != default and (name, content[name]) != ("select_by", "validation")
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


_OLD_NAMES = {
    "init": "init_loc", "sigma": "scale", "prior_mean": "prior_loc", "prior_sigma": "prior_scale",
    "learn_sigma": "learn_scale", "family": "prior", "effective_tasks": "n_tasks",
}  # fmt: skip

_OLD_DEFAULTS: dict[str, Any] = {
    "dataset": None, "host": "pn", "backbone": None, "scaler": None, "metric": None,
    "preset": "default",
    "backbone_options": {}, "scaler_options": {}, "host_options": {}, "objective_options": {},
    "n_way": 5, "n_shot": 1, "n_query": 15, "queries": "balanced", "steps": None,
    "tasks_per_step": 1, "algorithm": "adam", "lr": 1e-3, "momentum": 0.9, "weight_decay": 0.0,
    "lr_every": None, "lr_milestones": None, "lr_factor": 0.5, "clip": None,
    "clip_by": "variable", "cotraining": False, "cotraining_options": {}, "val_every": 100,
    "val_episodes": 400, "val_way": None, "val_items": None, "val_alpha": None, "select_by": None,
    "test_query": None, "seed": 0, "checkpoint_every": 100, "log_every": 10,
    "precision": "32-true",
}  # fmt: skip
