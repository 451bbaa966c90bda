"""`varscale train`: one run, into a run directory."""

import os
import re
from argparse import HelpFormatter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import Namespace

from varscale.backbones import BACKBONES
from varscale.cli.output import reply
from varscale.cli.parser import Parser, command, option, take
from varscale.cli.progress import Bar
from varscale.core.allocator import keep_memory
from varscale.core.extras import needs
from varscale.core.registry import Registry
from varscale.data import Dataset
from varscale.hosts import HOSTS
from varscale.report.text import percent
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve
from varscale.runs.config_files import chain, find_config
from varscale.runs.settling import describe_scale
from varscale.scalers import SCALERS

SECTIONS = {
    "Run": ("config", "out", "seed", "print_config", "base", "json"),
    "Data and tasks": ("dataset", "n_way", "n_shot", "n_query", "queries"),
    "Model": (
        "host", "backbone", "scaler", "metric", "preset", "shot_offset", "scaler_options",
        "host_options", "backbone_options", "objective_options", "imports",
    ),
    "Optimisation": (
        "steps", "tasks_per_step", "algorithm", "lr", "momentum", "weight_decay", "lr_every",
        "lr_milestones", "lr_factor", "clip", "clip_by", "cotraining", "cotraining_options",
    ),
    "Validation and checkpoints": (
        "val_every", "val_episodes", "val_way", "val_items", "val_alpha", "select_by",
        "relearn", "test_query", "checkpoint_every", "log_every",
    ),
    "Hardware": ("accelerator", "devices", "num_nodes", "strategy", "precision"),
}  # fmt: skip
"""Options as `--help` groups them."""


class TrainParser(Parser):
    """Parses a training run, whose configs may build on others."""

    sections = SECTIONS

    def parse_args(self, args: Any = None, *more: Any, **options: Any) -> Any:
        """Parse a command line, every config after those that it builds on."""
        return super().parse_args(with_bases(with_imports(args or ())), *more, **options)

    def format_help(self, formatter: HelpFormatter | None = None) -> str:
        """The page that `--help` prints, with our words for an option of jsonargparse's own."""
        actions = {action.dest: action for action in self._actions}
        actions["print_config"].help = "print the config with all options applied, and exit"
        imports = actions["imports"]
        imports.option_strings, imports.metavar = ["--import"], "MODULE"
        imports.help = "Module, or .py file, with members of yours; repeat it for several."
        return super().format_help(formatter)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong, in the words of the command line, and exit with status 2."""
        super().error(message.replace("--imports", "--import"), ex)

    def nested(self) -> dict[str, str]:
        """Options of scalers, hosts and backbones, which have a prefix here."""
        families: tuple[Registry[Any], ...] = (BACKBONES, HOSTS, SCALERS)
        return {
            option: f"{registry.kind}_options.{option}"
            for registry in families
            for member in registry.loaded()
            for option in registry.options(member)
        }


def with_imports(words: Sequence[str]) -> list[str]:
    """A command line in which `--import MODULE` adds to the config's `imports`."""
    return [re.sub(r"^--import(?==|$)", "--imports+", word) for word in words]


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


@command(
    "Train a model into a run directory. varscale ls lists what --host, --scaler, --backbone, "
    "--preset and --config can be; varscale ls scalers shows each scaler's own options, which "
    "are set by --scaler_options.KEY VALUE.",
    "varscale train --dataset glyphs --scaler svs --metric cosine --steps 300 --out runs/svs",
    option(
        "--config FILE",
        "YAML file, or a name of varscale ls configs; later options win",
        action="config",
    ),
    option("--base FILE", "in a YAML file: the file it builds on"),
    option("--out RUN", "run directory to create; by default a name in runs/"),
    TrainConfig,
    kind=TrainParser,
)
def run(args: Namespace) -> None:
    """Train a new run."""
    config = take(args, TrainConfig)
    dataset = Dataset.open(config.dataset)
    config = resolve(config, dataset)
    path = Path(args.out or default_path(config))
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0  # by torchrun
    if is_main() and not (restarted and path.exists()):
        Run.create(path, config, dataset)
    show(args, path, config)


def default_path(config: TrainConfig) -> Path:
    """The run directory if `--out` is not given."""
    shots = config.n_shot if isinstance(config.n_shot, int) else "x"
    name = f"{config.dataset}-{config.host}-{config.scaler or 'unscaled'}"
    return Path("runs") / f"{name}-{config.n_way}w{shots}s-seed{config.seed}"


def show(args: Namespace, path: Path, config: TrainConfig) -> None:
    """Train a run to its end, show its progress, and print the result."""
    train_with_progress(path, config)
    if not is_main():
        return
    run = Run.open(path)
    result = run.result
    assert result is not None
    chosen = "without validation"
    if result["val_accuracy"] is not None:
        accuracy = percent(result["val_accuracy"], result["val_ci95"])
        chosen = f"best at step {result['best_step']:,}: {accuracy} % in validation"
        if config.val_way != config.n_way:
            chosen += f", {config.val_way}-way"
    testable = run.dataset().class_split.count("test") > 1
    seconds = result["seconds"]
    took = f"{seconds:.0f} seconds" if seconds < 60 else f"{seconds / 60:.1f} minutes"
    if not result["steps"]:
        chosen = "nothing to learn: neither backbone nor scale has weights (--backbone, --scaler)"
    shown = (
        f"{path}: {result['steps']:,} steps in {took}, {chosen}\n"
        + (f"{describe_scale(result['scale'])}\n" if result["scale"] else "")
        + (f"Test it: varscale eval {path}" if testable else "It has too few test classes.")
    )
    reply(args, {"run": str(path), **result}, shown)


def train_with_progress(path: Path, config: TrainConfig) -> None:
    """Train a run to its end, with progress on stderr."""
    with needs("train", "Training"):
        from varscale.runs.trainer import train
    keep_memory()
    with Bar(path.name) if is_main() else nullcontext() as bar:
        for metrics in train(path, config):
            if bar is not None:
                bar(metrics["step"], config.steps or 0, _note(metrics))


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
