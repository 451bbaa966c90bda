"""`TrainConfig`: a training run as one flat dataclass, the schema of its YAML file and options."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import torch

from varscale.backbones import BACKBONES
from varscale.core.imports import import_located, locate_module, short_name
from varscale.core.precision import Precision
from varscale.core.processes import check_accelerator
from varscale.core.registry import unknown
from varscale.data import Dataset, EpisodeSampler, Split
from varscale.data.sampler import Queries
from varscale.hosts import HOSTS
from varscale.hosts.base import Metric
from varscale.learn.cotraining import Cotraining, CotrainingPlan
from varscale.model import PRESETS, Objective, ScaledModel, create
from varscale.model.factory import choose_options
from varscale.scalers import SCALERS


@dataclass(frozen=True)
class TrainConfig:
    """A training run. Defaults come from the preset, the dataset and the host.

    Args:
        dataset: A prepared dataset (varscale data list), or glyphs. Required, here or in a config.
        host: The few-shot classifier: pn, matching or tadam.
        backbone: Embedding network; by default conv4 for images, else identity.
        scaler: How to learn the scale: svs, d-svs, ...; without one it is fixed at 1 (tadam: 7.5).
        metric: euclidean (squared), cosine, dot, or norm (unsquared); by default the host's own.
        preset: Set of defaults: default, reproduction, paper, released.
        shot_offset: Initial value of b in the shot law n / (n + b); by default off.
        backbone_options: Options of the backbone; sizes come from the dataset.
        scaler_options: Options of the scaler, such as --scaler_options.family normal.
        host_options: Options of the host.
        objective_options: Options of the loss: likelihood, aux_epochs, aux_scale, epoch_length.
        n_way: Classes per training task.
        n_shot: Supports per class; or a list, one number per class.
        n_query: Queries per class, or per task if queries is random.
        queries: Draw n_query of each class (balanced), or n_query per task (random).
        steps: Optimiser steps; by default 20,000.
        tasks_per_step: Tasks per step, over all processes.
        algorithm: The optimiser of the weights.
        lr: Learning rate of the weights.
        momentum: Momentum of sgd.
        weight_decay: Weight decay of the host's convolutions and matrices.
        lr_every: Multiply the learning rate by lr_factor every N steps, 0 for never; by
            default the preset's.
        lr_milestones: Multiply the learning rate by lr_factor after these steps.
        lr_factor: Factor of lr_every and lr_milestones.
        clip: Largest norm of a gradient; by default unlimited. A scaler with its own learning rate
            is not clipped.
        clip_by: Clip each variable alone, or the global norm.
        cotraining: Add steps of ordinary classification, as TADAM does.
        cotraining_options: Its options: batch_size, decay, stages, offset, replace, held_out,
            statistics.
        val_every: Validate every N steps, 0 for never.
        val_episodes: Validation tasks.
        val_way: Classes of a validation task; by default n_way, at most 5, and no more than there
            are. Tests have as many or more.
        val_items: Items to use of each validation class; by default all.
        val_alpha: Scale in validation: posterior mean, or one sample per task; by default the
            preset's.
        select_by: Keep the best model by validation accuracy, validation NLL, or training
            accuracy; by default the preset's.
        relearn: Fit the best scale to validation classes; by default the preset's.
        test_query: Queries per class of a test task; by default the preset's.
        seed: Seed of weights, tasks and draws.
        checkpoint_every: Save a checkpoint every N steps, 0 for only at the end.
        log_every: Write TensorBoard events every N steps.
        accelerator: Kind of device: auto, cpu, cuda or mps.
        devices: Processes on this machine.
        num_nodes: Machines.
        strategy: How processes share a step.
        precision: 32-true, 64-true, or bf16-mixed: embed in bfloat16.
        imports: Modules, or .py files, that register members of yours.
    """

    dataset: str
    host: str = "pn"
    backbone: str | None = None
    scaler: str | None = None
    metric: Metric | None = None
    preset: str = "default"
    shot_offset: float | None = None
    backbone_options: dict[str, Any] = field(default_factory=dict)
    scaler_options: dict[str, Any] = field(default_factory=dict)
    host_options: dict[str, Any] = field(default_factory=dict)
    objective_options: dict[str, Any] = field(default_factory=dict)
    n_way: int = 5
    n_shot: int | list[int] = 1
    n_query: int = 15
    queries: Queries = "balanced"
    steps: int | None = None
    tasks_per_step: int = 1
    algorithm: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 0.0
    lr_every: int | None = None
    lr_milestones: list[int] | None = None
    lr_factor: float = 0.5
    clip: float | None = None
    clip_by: Literal["variable", "global"] = "variable"
    cotraining: bool = False
    cotraining_options: dict[str, Any] = field(default_factory=dict)
    val_every: int = 100
    val_episodes: int = 400
    val_way: int | None = None
    val_items: int | None = None
    val_alpha: Literal["mean", "sample"] | None = None
    select_by: Literal["validation", "nll", "training"] | None = None
    relearn: bool | None = None
    test_query: int | None = None
    seed: int = 0
    checkpoint_every: int = 100
    log_every: int = 10
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = 1
    num_nodes: int = 1
    strategy: Literal["auto", "ddp"] = "auto"
    precision: Precision = "32-true"
    imports: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, low in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and not low <= value < float("inf"):
                raise ValueError(f"Expected {name} >= {low}, got {value!r}.")
        modules: object = self.imports  # whatever a file had
        if not isinstance(modules, list) or not all(isinstance(name, str) for name in modules):
            raise ValueError(f"Expected a list of modules as imports, got {modules!r}.")
        for name in ("lr", "lr_factor", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"Expected {name} > 0, got {value!r}.")
        if self.cotraining_options and not self.cotraining:
            raise ValueError("cotraining_options need cotraining=true.")
        processes, shared = self.devices * self.num_nodes, {"tasks_per_step": self.tasks_per_step}
        if self.cotraining_plan:
            shared["cotraining_options.batch_size"] = self.cotraining_plan.batch_size
        for name, value in shared.items():
            if value % processes:
                raise ValueError(
                    f"Expected {name} to be a multiple of the {processes} processes, got {value}. "
                    f"Use {name}={-(-value // processes) * processes}, or devices=1."
                )

    @property
    def cotraining_plan(self) -> CotrainingPlan | None:
        """When to co-train, and on what."""
        for option in self.cotraining_options:
            if option not in CotrainingPlan.__dataclass_fields__:
                raise unknown("option of cotraining:", option, CotrainingPlan.__dataclass_fields__)
        return CotrainingPlan(**self.cotraining_options) if self.cotraining else None

    @property
    def hash(self) -> str:
        """Hash of every value that a result depends on, defaults included; devices are left out.

        Imported modules count by their names, without the folders that they are in: the hash of
        their code is in the provenance.
        """
        chosen = choose_options(
            self.host, scaler=self.scaler, metric=self.metric, preset=self.preset
        )
        defaults: dict[str, Mapping[str, Any]] = {
            "host": HOSTS.defaults(self.host),
            "objective": {f.name: f.default for f in fields(Objective)},
            "cotraining": asdict(CotrainingPlan()) if self.cotraining else {},
            "backbone": BACKBONES.defaults(self.backbone) if self.backbone else {},
            "scaler": SCALERS.defaults(self.scaler) if self.scaler else {},
        }
        content = {name: value for name, value in asdict(self).items() if name not in HARDWARE}
        del content["preset"], content["metric"]  # among the options
        content["imports"] = [short_name(name) for name in self.imports]
        if not self.imports:  # the hash that a run had before there were any
            del content["imports"]
        for kind, values in defaults.items():
            key = f"{kind}_options"
            content[key] = {**values, **chosen.get(kind, {}), **content[key]}
        text = json.dumps(_canonical(content), sort_keys=True, default=_name)
        return hashlib.sha256(text.encode()).hexdigest()

    def import_modules(self) -> None:
        """Import the modules that register members of the user's: this executes their code."""
        for name in self.imports:
            import_located(name)

    def rate_factor(self, step: int) -> float:
        """Factor of the learning rate at a step: `lr_factor` for every drop before it."""
        drops = step // self.lr_every if self.lr_every else 0
        drops += sum(step >= milestone for milestone in self.lr_milestones or ())
        return float(self.lr_factor**drops)

    def sampler(self, labels: Any, stream: str, **task: Any) -> EpisodeSampler:
        """Sampler of training tasks, or of tasks with other options."""
        options = {**{name: getattr(self, name) for name in TASK}, **task}
        return EpisodeSampler(labels, stream=stream, **options)

    def model(self) -> ScaledModel:
        """Build the model with its initial weights, which depend on the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            options: dict[str, Any] = {name: getattr(self, name) for name in _MODEL}
            return create(self.host, backbone=self.backbone or "conv4", **options)


TASK = ("n_way", "n_shot", "n_query", "queries", "seed")
"""What describes a task, and which tasks are drawn."""
_MODEL = (
    "scaler", "metric", "preset", "shot_offset", "backbone_options", "scaler_options",
    "host_options", "objective_options",
)  # fmt: skip
HARDWARE = ("accelerator", "devices", "num_nodes", "strategy")
"""What a result does not depend on, but for rounding."""

_AT_LEAST: dict[str, float] = {
    "n_way": 2, "n_query": 1, "steps": 1, "tasks_per_step": 1, "momentum": 0, "weight_decay": 0,
    "lr_every": 0, "val_every": 0, "val_episodes": 2, "val_way": 2, "val_items": 2,
    "test_query": 1, "checkpoint_every": 0, "log_every": 1, "devices": 1, "num_nodes": 1,
}  # fmt: skip


def _canonical(value: Any) -> Any:
    """The same value for numbers that are equal: 1 and 1.0 are the same run."""
    if isinstance(value, Mapping):
        return {key: _canonical(inner) for key, inner in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _name(value: object) -> str:
    """What JSON cannot hold, the same in every process: a member's default may be anything."""
    return re.sub(" at 0x[0-9a-f]+", "", getattr(value, "__qualname__", None) or repr(value))


def resolve(config: TrainConfig, dataset: Dataset) -> TrainConfig:
    """Fill in every default, and check the run against the dataset.

    Raises ValueError for whatever cannot work: names, options, tasks that the classes do not allow.
    Imports the config's modules first.
    """
    config = replace(config, imports=[locate_module(name) for name in config.imports])
    config.import_modules()
    if config.preset not in PRESETS:
        raise unknown("preset", config.preset, PRESETS)
    preset, scaler, asked = PRESETS[config.preset], config.scaler or "", config.relearn
    if config.select_by in ("training", "nll") and not config.val_every:
        raise ValueError(
            f"select_by={config.select_by!r} compares at every val_every steps, got val_every=0."
        )
    if config.lr_milestones is not None and config.lr_every is None:
        config = replace(config, lr_every=0)
    if config.lr_every is not None and config.lr_milestones is None:
        config = replace(config, lr_milestones=[])
    given = {**preset.training, **preset.training_for.get(scaler, {})}
    filled = {key: value for key, value in given.items() if getattr(config, key) is None}
    filled["backbone"] = config.backbone or ("conv4" if dataset.is_images else "identity")
    filled["backbone_options"] = _sizes(filled["backbone"], config.backbone_options, dataset)
    if not config.val_every:
        filled["select_by"] = "validation"  # nothing is selected
    there = dataset.class_split.count("val") if config.val_every else 5
    filled["val_way"] = config.val_way or max(min(config.n_way, 5, there), 2)
    config = replace(config, **filled)
    config = replace(config, scaler_options=_scaler_options(config, dataset))
    config.sampler(dataset["train"].labels, "train", class_names=dataset.class_names)
    if config.val_every:
        if there < 2:
            raise ValueError(
                f"The dataset {dataset.name!r} has {there or 'no'} val classes to validate on, and "
                "a task needs two. Set val_every to 0 to train without validation, or prepare it "
                "with more classes or with other shares (--split)."
            )
        validation(config, dataset)
    try:
        model = config.model()
        in_log = bool(model.scaler.log_parameters())
        every = {**config.scaler_options, **model.scaler.options}
        config = replace(config, scaler_options=every if scaler else {})
        if config.cotraining_plan:
            Cotraining(model.host, dataset["train"], config.cotraining_plan, steps=1, seed=0)
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"An option of the model has a value that it cannot have: "
            f"{str(error).splitlines()[0].rstrip('.')}. "
            "varscale ls shows the options with their defaults."
        ) from error
    if asked and not (in_log and config.val_every):
        raise ValueError(
            "relearn needs validation (val_every) and a scale that is learned in log space, got "
            f"val_every={config.val_every} and scaler={config.scaler!r}. Set relearn to false."
        )
    config = replace(config, relearn=bool(config.relearn and in_log and config.val_every))
    check_accelerator(config.accelerator, config.devices)
    return config


def validation(config: TrainConfig, dataset: Dataset) -> tuple[Split, EpisodeSampler]:
    """The items and tasks of every validation: always the same."""
    if isinstance(config.n_shot, list) and len(config.n_shot) != config.val_way:
        raise ValueError(
            f"n_shot has {len(config.n_shot)} numbers, for {len(config.n_shot)}-way tasks; "
            f"validation is {config.val_way}-way. Set val_way to {len(config.n_shot)}, which needs "
            "as many validation classes, or val_every to 0."
        )
    split = dataset["val"] if config.val_items is None else dataset["val"].first(config.val_items)
    try:
        names = dataset.class_names
        return split, config.sampler(split.labels, "val", n_way=config.val_way, class_names=names)
    except ValueError as error:
        few = f" val_items={config.val_items} may be too few." if config.val_items else ""
        raise ValueError(f"Validation (val_way, val_items, val_every): {error}{few}") from error


def _scaler_options(config: TrainConfig, dataset: Dataset) -> dict[str, Any]:
    """Every option of the scaler, with the number of tasks that its exact bound needs (M30).

    A preset of the paper counts training tasks. Else tasks that share classes are not independent,
    and training classes divided by ways counts those that share none.
    """
    name = config.scaler
    if name is None:
        return config.scaler_options
    preset = PRESETS[config.preset].scaler.get(name, {})
    options = {**SCALERS.defaults(name), **preset, **config.scaler_options}
    if SCALERS[name].local or "effective_tasks" not in options:
        return options
    in_log = options.get("family", "normal") != "normal"
    if in_log and options.get("kl_weight") is None:
        options["kl_weight"] = "elbo"
    if options.get("kl_weight") == "elbo" and "effective_tasks" not in config.scaler_options:
        tasks = (config.steps or 0) * config.tasks_per_step
        classes = dataset.class_split.count("train")
        options["effective_tasks"] = max(1.0, classes / config.n_way) if in_log else tasks
    return options


def _sizes(backbone: str, options: dict[str, Any], dataset: Dataset) -> dict[str, Any]:
    """Options of the backbone, with the sizes of the dataset's items."""
    _, *item = dataset.items.shape
    known = BACKBONES.options(backbone)
    if dataset.is_images and "image_size" not in known and "dim" in known:
        raise ValueError(
            f"{dataset.name} has images; the backbone {backbone!r} wants embeddings. Use conv4, "
            "resnet12 or tiny."
        )
    if not dataset.is_images and "image_size" in known:
        raise ValueError(
            f"{dataset.name} has embeddings of {item[0]} numbers; the backbone {backbone!r} wants "
            "images. Use identity or linear."
        )
    sizes = {"image_size": item[0], "in_channels": item[-1], "dim": item[0]}
    for name, size in sizes.items():
        if options.get(name, size) != size and name in known:
            raise ValueError(
                f"Expected {name}={size}, the size of {dataset.name}'s items, got {options[name]}."
            )
    return {**{name: size for name, size in sizes.items() if name in known}, **options}
