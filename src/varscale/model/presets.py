"""Presets: named bundles of options, for the paper's text, its released code, and our default.

A preset says nothing about an option whose member default it keeps. The options themselves are
documented where they are named: `scalers`, `hosts`, `objective`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from varscale.core.registry import Options


@dataclass(frozen=True)
class Preset:
    """Options by the member that takes them.

    Attributes:
        summary: What it is, in one line.
        host: Options of the host of any scaled model.
        scaler: Options of each scaler.
        objective: Options of the objective, by scaler.
        host_for: Further options of the host, by scaler; the legacy gradient is Euclidean's alone
            and has no effect elsewhere.
        unscaled: Options of a host without a scaler, by the metric it was asked for.
        training: How a model is trained and tested, as keys of `config.TrainConfig`.
        training_for: The same, by scaler.
    """

    summary: str
    host: Options = field(default_factory=dict)
    scaler: Mapping[str, Options] = field(default_factory=dict)
    objective: Mapping[str, Options] = field(default_factory=dict)
    host_for: Mapping[str, Options] = field(default_factory=dict)
    unscaled: Mapping[str, Options] = field(default_factory=dict)
    training: Options = field(default_factory=dict)
    training_for: Mapping[str, Options] = field(default_factory=dict)


PAPER_TASKS = 20_000
"""Training tasks of a Conv-4 run in the paper."""

PAPER_TRAINING: Options = {
    "steps": PAPER_TASKS,
    "lr_every": 2000,
    "lr_milestones": [],
    "val_alpha": "mean",
    "select_by": "validation",
    "relearn": False,
    "test_query": 15,
}
"""A Conv-4 run of the paper, for all that does not depend on the model."""

NORMAL: Mapping[str, Options] = {
    name: {"family": "normal"} for name in ("svs", "d-svs", "avs", "d-avs")
}
"""The published family, whose defaults are the published constants."""


def published(options: Mapping[str, Options]) -> Mapping[str, Options]:
    """Options of each scaler, in the published family."""
    return {name: {**NORMAL[name], **options.get(name, {})} for name in NORMAL}


PRESETS: dict[str, Preset] = {
    "default": Preset(
        summary="a scale that needs no initial value and no learning rate",
        training={**PAPER_TRAINING, "relearn": True},
    ),
    "reproduction": Preset(
        summary="our corrected formulas, with the constants of the released code",
        training=PAPER_TRAINING,
        scaler=NORMAL,
        objective={name: {"aux_epochs": 150.0, "aux_scale": 100.0} for name in ("avs", "d-avs")},
    ),
    "paper": Preset(
        summary="the formulas of the paper's text: kappa 1, exact bound, auxiliary scale 1",
        training=PAPER_TRAINING,
        host={"kappa": 1.0},
        scaler=published(
            {
                "svs": {"kl_weight": "elbo", "effective_tasks": PAPER_TASKS},
                "d-svs": {"kl_weight": "elbo", "effective_tasks": PAPER_TASKS},
                "avs": {"kl_weight": "elbo", "sigma": "generated"},
                "d-avs": {"kl_weight": "elbo", "sigma": "generated"},
            }
        ),
        objective={name: {"aux_epochs": 150.0, "aux_scale": 1.0} for name in ("avs", "d-avs")},
    ),
    "released": Preset(
        summary="what the released code computes, its doubled Euclidean gradient included",
        training={
            **PAPER_TRAINING,
            "lr_every": 0,
            "lr_milestones": list(range(1900, 30_000, 2000)),
        },
        training_for={
            "svs": {"val_alpha": "sample", "test_query": 1},
            "d-svs": {"val_alpha": "sample", "test_query": 1, "steps": 30_000},
            "d-avs": {"select_by": "training"},
        },
        unscaled={"cosine": {"metric": "dot"}},  # its unscaled "cosine" is the raw inner product
        host_for={name: {"legacy_alpha_grad": True} for name in ("svs", "d-svs")},
        scaler=published({name: {"kl_weight": 0.0, "sigma": 1.0} for name in ("avs", "d-avs")}),
        objective={name: {"aux_epochs": 150.0, "aux_scale": 100.0} for name in ("avs", "d-avs")},
    ),
}
