"""Run directories: config, provenance and result of a run."""

import hashlib
import json
import os
import platform
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from varscale.backbones import BACKBONES
from varscale.core.files import write_whole
from varscale.core.imports import fingerprints
from varscale.data import Dataset, EpisodeSampler
from varscale.hosts import HOSTS
from varscale.model import ScaledModel
from varscale.runs.checkpoint import newest_checkpoint, restore_module
from varscale.runs.config import TrainConfig, validation
from varscale.runs.config_files import read_config
from varscale.scalers import SCALERS
from varscale.version import __version__

CONFIG, PROVENANCE, RESULT = "config.yaml", "provenance.json", "result.json"


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory: its config with every default filled in, and the hashes it depends on."""

    path: Path
    config: TrainConfig
    provenance: dict[str, Any]

    @classmethod
    def create(cls, path: Path, config: TrainConfig, dataset: Dataset) -> "Run":
        """Make a run directory, whole or not at all.

        Only one process at a time can make it. Files that a killed one left are removed.
        """
        from filelock import FileLock

        def check() -> None:
            if path.is_dir() and not any(path.iterdir()):
                return
            if path.exists():
                lock.unlink(missing_ok=True)  # of one that was killed when all was done
                if (path / CONFIG).exists():
                    known = f"a run. Continue it: varscale resume {path}. Or choose"
                else:
                    known = f"{'a folder with other files' if path.is_dir() else 'a file'}. Choose"
                raise ValueError(
                    f"{path} exists, and is {known} another directory for a new run: --out RUN."
                )

        place = path.resolve()
        lock, stage = (place.parent / f".{place.name}.{end}" for end in ("lock", "new"))
        check()
        place.parent.mkdir(parents=True, exist_ok=True)
        provenance = _provenance(config, dataset)
        facts, text = json.dumps(provenance, indent=1), _yaml(config)
        with FileLock(lock):
            check()
            shutil.rmtree(stage, ignore_errors=True)
            try:
                # an empty folder is filled: it may be a mount point, or the current folder
                folder = place if place.is_dir() else stage
                folder.mkdir(exist_ok=True)
                write_whole(folder / PROVENANCE, facts.encode())
                write_whole(folder / CONFIG, text.encode())
                if folder is stage:
                    stage.rename(place)
            finally:
                shutil.rmtree(stage, ignore_errors=True)
            lock.unlink(missing_ok=True)  # whoever waits for it finds the run, and gives up
        return cls(path, config, provenance)

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Open a run directory, and import the modules that its config names under `imports`.

        Raises ValueError if it was altered, was made by another version, or if a module is missing.
        """
        for name in (CONFIG, PROVENANCE):
            if not (path / name).is_file():
                raise ValueError(f"Expected a run directory, got {path}: it has no {name}.")
        try:
            provenance = json.loads((path / PROVENANCE).read_text())
            version, expected = provenance["versions"]["varscale"], provenance["config"]
            int(provenance["machine"]["threads"])
            if not all(isinstance(v, str) for v in (version, expected, provenance["dataset"])):
                raise TypeError("a value that is not text")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{path / PROVENANCE} is damaged: {error!r}.") from error
        if version.split(".")[:2] != __version__.split(".")[:2]:  # patches keep the numbers
            raise ValueError(
                f"{path} was made by varscale {version}, this is {__version__}: its numbers may "
                f"differ. Use that version, or train again from {path / CONFIG}."
            )
        try:
            config = read_config(path / CONFIG)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path / CONFIG} cannot be read: {error}") from error
        try:
            config.import_modules()
        except ValueError as error:
            raise ValueError(f"{path / CONFIG}, imports: {error}") from error
        run = cls(path, config, provenance)
        try:
            intact = config.hash == expected
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path / CONFIG} cannot be read: {error}") from error
        if not intact and (changed := run.changed_code()):
            raise ValueError(
                f"{', '.join(changed)} changed after {path} began: its options are others. Put the "
                f"code back, or train again: varscale train --config {path / CONFIG} --out NEW."
            )
        if not intact:
            raise ValueError(
                f"{path / CONFIG} was altered after the run began. Put it back, or train again: "
                f"varscale train --config {path / CONFIG} --out NEW."
            )
        return run

    def dataset(self, name: str | None = None) -> Dataset:
        """Open the run's dataset, which must be unchanged, or another by name."""
        dataset = Dataset.open(name or self.config.dataset)
        if name in (None, self.config.dataset) and dataset.hash != self.provenance["dataset"]:
            raise ValueError(
                f"The dataset {dataset.name!r} is not the one that {self.path} was trained on: "
                f"hash {dataset.hash[:12]}, then {self.provenance['dataset'][:12]}. Prepare it as "
                "it was, or train again."
            )
        return dataset

    def changed_code(self) -> list[str]:
        """Modules outside varscale whose code is not what the run began with."""
        then = {found["module"]: found for found in self.provenance.get("code", ())}
        now = {found["module"]: found for found in _code(self.config)}
        return [name for name in {**then, **now} if then.get(name) != now.get(name)]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for training; the lock ends with the process."""
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.path / ".lock", timeout=0):
                yield
        except Timeout as error:
            raise ValueError(f"Another process is training {self.path}. Wait for it.") from error

    def model(self) -> ScaledModel:
        """The best model so far, in evaluation mode."""
        if changed := self.changed_code():
            warnings.warn(
                f"{', '.join(changed)} changed after {self.path} began: the model may not be the "
                "one that was trained.",
                stacklevel=2,
            )
        best = newest_checkpoint(self.path / "best")
        if best is None and self.result is not None:
            raise ValueError(
                f"{self.path / 'best'} is missing or damaged. Train again: varscale train --config "
                f"{self.path / CONFIG} --out NEW."
            )
        if best is None:
            raise ValueError(
                f"{self.path} has no model yet. Let it train: varscale resume {self.path}."
            )
        model = self.config.model()
        if self.config.precision == "64-true":
            model.double()
        restore_module(model, best.tensors)
        return model.eval()

    @property
    def result(self) -> dict[str, Any] | None:
        """The result; `None` while the run is not finished."""
        path = self.path / RESULT
        if not path.is_file():
            return None
        try:
            return dict(json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged; varscale resume writes it again.") from error


def load(path: str | Path) -> ScaledModel:
    """Load the best model of a run directory, in evaluation mode."""
    return Run.open(Path(path)).model()


def _provenance(config: TrainConfig, dataset: Dataset) -> dict[str, Any]:
    samplers = {"train": config.sampler(dataset["train"].labels, "train")}
    if config.val_every:
        samplers["val"] = validation(config, dataset)[1]
    split = json.dumps([dataset.class_names, dataset.class_split]).encode()
    code = _code(config)
    return {
        **({"code": code} if code else {}),
        "config": config.hash,
        "dataset": dataset.hash,
        "split": hashlib.sha256(split).hexdigest(),
        "episodes": {name: _episodes_hash(sampler) for name, sampler in samplers.items()},
        "versions": {
            "varscale": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "machine": {
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
    }


def _episodes_hash(sampler: EpisodeSampler) -> str:
    """Hash of the row numbers of the first hundred tasks."""
    rows = sampler.batch(0, 100)
    content = torch.cat([rows.support, rows.query], dim=1)
    return hashlib.sha256(content.numpy().tobytes()).hexdigest()


def _code(config: TrainConfig) -> list[dict[str, str]]:
    """Hashes of the modules that the config imports, and of those of members by entry point."""
    parts = ((HOSTS, config.host), (BACKBONES, config.backbone), (SCALERS, config.scaler))
    entries = [registry.origin(name) for registry, name in parts if name is not None]
    offered = dict.fromkeys(entry.module for entry in entries if entry is not None)
    return fingerprints([*config.imports, *offered])


def _yaml(config: TrainConfig) -> str:
    """The config as a YAML file."""
    import yaml

    try:
        return str(yaml.safe_dump(asdict(config), sort_keys=False))
    except yaml.YAMLError as error:
        raise ValueError(
            "Expected options that a YAML file can hold (numbers, text, true, lists), got "
            f"{error.args[-1]!r}. Give the member a name or a number instead, as its default too."
        ) from error
