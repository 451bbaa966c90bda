"""Sizes of an experiment: the paper's, and those that a small machine can run."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from varscale.learn.optimizers import steps_itself
from varscale.model import PRESETS
from varscale.runs import TrainConfig

SizeName = Literal["small", "paper", "frozen"]


@dataclass(frozen=True)
class Size:
    """How large an experiment is. `frozen` trains the scaler alone, on precomputed embeddings.

    Attributes:
        summary: What it is, in one line.
        image_size: Height and width of its images; `None` for embeddings.
        steps: Training steps; `None` as the config has it.
        datasets: What it has instead of a config's dataset.
        width: Width of ResNet-12.
        seeds: Runs of each cell.
        n_query: Queries of a class in training; `None` as the config has it. The tests keep 15.
        validations: Validations of a run, at most.
        episodes: Test tasks.
    """

    summary: str
    image_size: int | None
    steps: int | None
    datasets: dict[str, str]
    width: float
    seeds: int
    n_query: int | None = None
    validations: int = 10
    episodes: int = 10_000


SIZES: dict[str, Size] = {
    "small": Size(
        summary="reduced: 32x32, 3,000 steps, 5 queries a class in training, the paper's ratios",
        image_size=32,
        steps=3000,
        datasets={"miniimagenet": "miniimagenet32"},
        width=0.25,
        seeds=3,
        n_query=5,
    ),
    "frozen": Size(
        summary="the scaler alone, on precomputed embeddings",
        image_size=None,
        steps=None,
        datasets={"miniimagenet": "miniimagenet32-conv4"},
        width=1.0,
        seeds=3,
    ),
    "paper": Size(
        summary="as published: 84x84; but at most 20 validations",
        image_size=84,
        steps=None,
        datasets={},
        width=1.0,
        seeds=5,
        validations=20,
    ),
}


def resize(config: TrainConfig, name: SizeName, dataset: str | None = None) -> TrainConfig:
    """Bring the config of a cell to a size.

    With fewer steps, what the paper's schedule fixes stays as it is: the drops of the learning rate
    and the fading of the auxiliary loss come at the same fractions of the training. The scaler's
    learning rate and KL weight are left to `keep_scaler_ratios`.

    On frozen embeddings the model of the last step is tested.

    Args:
        config: The cell as the paper has it.
        name: Of `SIZES`.
        dataset: Train on this instead.
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
