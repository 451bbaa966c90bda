"""Sizes of an experiment: the paper's, and those that a small machine can run."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from varscale.learn.optimizers import steps_itself
from varscale.model import PRESETS
from varscale.runs import TrainConfig

SizeName = Literal["small", "paper", "frozen"]


@dataclass(frozen=True)
class Size:
    """How large an experiment is; what is `None`, the config of a cell decides."""

    summary: str
    image_size: int | None  # height and width; None for precomputed embeddings
    steps: int | None = None  # of training
    datasets: dict[str, str] = field(default_factory=dict)  # what replaces a config's dataset
    width: float = 1.0  # of ResNet-12
    seeds: int = 3  # runs of each cell
    n_query: int | None = None  # of a class in training; the tests keep 15
    validations: int = 10  # of a run, at most
    episodes: int = 10_000  # test tasks


FILE = Path(__file__).with_suffix(".json")
SIZES = {name: Size(**values) for name, values in json.loads(FILE.read_text()).items()}


def resize(config: TrainConfig, name: SizeName, dataset: str | None = None) -> TrainConfig:
    """Bring the config of a cell, as the paper has it, to a size; or train on another dataset.

    With fewer steps, what the paper's schedule fixes stays as it is: the drops of the learning rate
    and the fading of the auxiliary loss come at the same fractions of the training. The scaler's
    learning rate and KL weight are left to `keep_scaler_ratios`.

    On frozen embeddings the model of the last step is tested.
    """
    size = SIZES[name]
    config = replace(config, dataset=dataset or size.datasets.get(config.dataset, config.dataset))
    if config.backbone == "resnet12" and size.width != 1:
        config = replace(config, backbone_options={**config.backbone_options, "width": size.width})
    steps = config.steps
    assert steps is not None
    if size.image_size is None:  # one scale changes no answer: validation could not choose by it
        return replace(config, val_every=0)
    if size.steps is None:
        return replace(config, val_every=max(config.val_every, steps // size.validations))
    if steps <= size.steps:
        return config
    factor = size.steps / steps
    changed: dict[str, Any] = {
        "steps": size.steps,
        "lr_every": round(config.lr_every * factor) if config.lr_every else config.lr_every,
        "lr_milestones": config.lr_milestones and [round(n * factor) for n in config.lr_milestones],
        "val_every": size.steps // size.validations,
        "checkpoint_every": 100,
    }
    if size.n_query is not None and config.backbone == "conv4":
        changed |= {"n_query": size.n_query, "val_episodes": 1000}
    preset = PRESETS[config.preset]
    objective = {**preset.objective.get(config.scaler or "", {}), **config.objective_options}
    if objective.get("aux_epochs") is not None:
        aux_epochs = objective["aux_epochs"] * factor
        changed["objective_options"] = {**config.objective_options, "aux_epochs": aux_epochs}
    return replace(config, **changed)


def keep_scaler_ratios(full: TrainConfig, config: TrainConfig) -> TrainConfig:
    """Let the scale of a resolved config move as far in its steps as the full one's in its own.

    The likelihood is summed over queries: with fewer of them a smaller weight of the KL keeps their
    ratio. In a step an entry of a scale of M entries moves by the learning rate over M times that
    sum, so learning rate x steps x queries / M stays.

    The KL of a generated scale, M (mu - mu0)² / (2 sigma0²) if all its entries are alike, stays
    too: with the default sigma0 = M it would grow as the embedding shrinks. (That of D-SVS has no
    weight to speak of at either size, and is left as it is.)
    """
    before, now = full.model().scaler, config.model().scaler
    assert full.steps is not None
    assert config.steps is not None
    queries, steps = config.n_query / full.n_query, config.steps / full.steps
    options = dict(config.scaler_options)
    prior = 1.0
    if now.local:
        prior = before.size / before.prior_sigma**2 / (now.size / now.prior_sigma**2)
    if now.kl_weight and (queries, prior) != (1, 1):
        options["kl_weight"] = now.kl_weight * queries * prior
    entries = now.size / before.size
    if steps_itself(now) and (queries, steps, entries) != (1, 1, 1):
        assert before.lr is not None
        options["lr"] = before.lr * entries / steps / queries
    return replace(config, scaler_options=options)
