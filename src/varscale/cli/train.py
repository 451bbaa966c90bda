"""`varscale train`: one run, into a run directory."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from varscale.backbones import BACKBONES
from varscale.cli.parser import Parser, command
from varscale.cli.progress import Bar
from varscale.core.allocator import keep_memory
from varscale.core.registry import Registry
from varscale.data import Dataset
from varscale.hosts import HOSTS
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve
from varscale.runs.config_files import chain, find_config
from varscale.scalers import SCALERS

SECTIONS = {
    "Run": ("config", "out", "seed", "print_config", "base", "json"),
    "Data and tasks": ("dataset", "n_way", "n_shot", "n_query", "queries"),
    "Model": (
        "host", "backbone", "scaler", "metric", "preset", "shot_offset", "scaler_options",
        "host_options", "backbone_options", "objective_options",
    ),
    "Optimisation": (
        "steps", "tasks_per_step", "algorithm", "lr", "momentum", "weight_decay", "lr_every",
        "lr_milestones", "lr_factor", "clip", "clip_by", "cotraining", "cotraining_options",
    ),
    "Validation and checkpoints": (
        "val_every", "val_episodes", "val_way", "val_items", "val_alpha", "select_by",
        "test_query", "checkpoint_every", "log_every",
    ),
    "Hardware": ("accelerator", "devices", "num_nodes", "strategy", "precision"),
}  # fmt: skip
"""Options as `--help` groups them."""


class TrainParser(Parser):
    """Parses a training run, whose configs may build on others."""

    def read(self, words: list[str]) -> Namespace:
        """Parse a command line, every config after those that it builds on."""
        return self.parse_args(with_bases(words))

    def nested(self) -> dict[str, str]:
        """Options of scalers, hosts and backbones, which have a prefix here."""
        families: dict[str, Registry[Any]] = {
            "backbone": BACKBONES,
            "host": HOSTS,
            "scaler": SCALERS,
        }
        return {
            option: f"{family}_options.{option}"
            for family, registry in families.items()
            for member in registry
            for option in registry.options(member)
        }


def parser() -> Parser:
    """Options of `varscale train`: those of `TrainConfig`."""
    parser = command(
        "Train a model into a run directory. varscale ls lists what --host, --scaler, --backbone, "
        "--preset and --config can be; varscale ls scalers shows each scaler's own options, which "
        "are set by --scaler_options.KEY VALUE.",
        "varscale train --config glyphs/svs --steps 200 --scaler_options.init 10 --out runs/svs",
        sections=SECTIONS,
        kind=TrainParser,
    )
    parser.add_argument(
        "--config",
        action="config",
        metavar="FILE",
        help="YAML file, or a name of varscale ls configs; later options win",
    )
    parser.add_argument(
        "--base", type=str | None, metavar="FILE", help="in a YAML file: the file it builds on"
    )
    parser.add_argument(
        "--out",
        type=str | None,
        metavar="RUN",
        help="run directory to create; by default a name in runs/",
    )
    parser.add_class_arguments(TrainConfig, None)
    shown = next(action for action in parser._actions if action.dest == "print_config")
    shown.help = "print the config with all options applied, and exit"
    return parser


def with_bases(words: Sequence[str]) -> list[str]:
    """A command line in which every config comes after those that it builds on."""
    single = [  # --config=FILE as two words
        part
        for word in words
        for part in (word.split("=", 1) if word.startswith("--config=") else [word])
    ]
    expanded: list[str] = []
    for before, word in zip(("", *single), single, strict=False):
        if before == "--config":
            *own, last = (str(path) for path in reversed(chain(find_config(word))))
            expanded += [part for path in own for part in (path, "--config")]
            word = last
        expanded.append(word)
    return expanded


def run(args: Namespace) -> None:
    """Train a new run."""
    config = TrainConfig(**{f.name: _plain(args[f.name]) for f in fields(TrainConfig)})
    dataset = Dataset.open(config.dataset)
    config = resolve(config, dataset)
    path = Path(args.out or default_path(config))
    if is_main() and not (was_restarted() and path.exists()):
        Run.create(path, config, dataset)
    show(path, config, as_json=args.json)


def default_path(config: TrainConfig) -> Path:
    """The run directory if `--out` is not given."""
    shots = config.n_shot if isinstance(config.n_shot, int) else "x"
    name = f"{config.dataset}-{config.host}-{config.scaler or 'unscaled'}"
    return Path("runs") / f"{name}-{config.n_way}w{shots}s-seed{config.seed}"


def show(path: Path, config: TrainConfig, *, as_json: bool = False) -> None:
    """Train a run to its end, show its progress, and print the result."""
    train_quietly(path, config, title=path.name)
    if not is_main():
        return
    result = Run.open(path).result
    assert result is not None
    if as_json:
        sys.stdout.write(json.dumps({"run": str(path), **result}) + "\n")
        return
    accuracy = result["val_accuracy"]
    chosen = (
        f"best at step {result['best_step']:,}: "
        f"{100 * accuracy:.2f} ± {100 * result['val_ci95']:.2f} % in validation"
        if accuracy is not None
        else "without validation"
    )
    sys.stdout.write(
        f"{path}: {result['steps']:,} steps in {result['seconds'] / 60:.1f} minutes, {chosen}\n"
        f"Test it: varscale eval {path}\n"
    )


def train_quietly(path: Path, config: TrainConfig, *, title: str) -> None:
    """Train a run to its end, with progress on stderr."""
    keep_memory()
    steps = config.steps or 0
    if not is_main():
        for _ in _train(path, config):
            pass
        return
    with Bar(title) as bar:
        for metrics in _train(path, config):
            bar(metrics["step"], steps, _note(metrics))


def _train(path: Path, config: TrainConfig) -> Iterator[dict[str, Any]]:
    try:
        from varscale.runs.trainer import train
    except ImportError as error:
        raise ValueError(
            f"Training needs the extra 'train' ({error}): pip install 'varscale[train]'."
        ) from error
    return train(path, config)


def _note(metrics: dict[str, Any]) -> str:
    parts = []
    if "loss" in metrics:  # a step of co-training may replace one on tasks
        parts += [f"{name} {metrics[name]:.3g}" for name in ("loss", "nll", "kl")]
        parts.append(f"accuracy {100 * metrics['accuracy']:.1f} %")
        scale = f"scale {metrics['scale_mean']:.3g} ± {metrics['scale_spread']:.2g}"
        if metrics["scale_max"] > metrics["scale_min"]:
            scale += f" ({metrics['scale_min']:.3g} .. {metrics['scale_max']:.3g})"
        parts.append(scale)
    if "lr" in metrics:
        parts.append(f"lr {metrics['lr']:.2g}")
    if "cotraining_accuracy" in metrics:
        parts.append(f"co-training {100 * metrics['cotraining_accuracy']:.1f} %")
    if "val_accuracy" in metrics:
        parts.append(f"validation {100 * metrics['val_accuracy']:.2f} %")
    return ", ".join(parts)


def is_main() -> bool:
    """Whether this process writes and prints; works before others are launched."""
    rank = os.environ.get("RANK")
    if rank is not None:  # torchrun
        return int(rank) == 0
    return all(int(os.environ.get(name, "0")) == 0 for name in ("LOCAL_RANK", "NODE_RANK"))


def was_restarted() -> bool:
    """Whether torchrun has started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _plain(value: Any) -> Any:
    return vars(value) if isinstance(value, Namespace) else value
