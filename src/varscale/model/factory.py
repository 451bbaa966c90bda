"""Build a model from the names of its parts."""

from typing import Any

from torch import nn

from varscale.backbones import BACKBONES
from varscale.core.registry import Options, unknown
from varscale.hosts import HOSTS
from varscale.hosts.base import Metric
from varscale.model.objective import Objective
from varscale.model.presets import PRESETS
from varscale.model.scaled import ScaledModel
from varscale.scalers import SCALERS, Fixed, Scaler


def create(
    host: str = "pn",
    *,
    backbone: str | nn.Module = "conv4",
    scaler: str | Scaler | None = None,
    metric: Metric | None = None,
    preset: str = "default",
    shot_offset: float | None = None,
    backbone_options: Options | None = None,
    scaler_options: Options | None = None,
    host_options: Options | None = None,
    objective_options: Options | None = None,
) -> ScaledModel:
    """Build a model from the names of its parts; `varscale ls` lists them.

    Args:
        host: The classifier: `pn`, `matching`, `tadam`.
        backbone: A registered name, or your own module with an attribute `out_dim`.
        scaler: A registered name, or your own scaler. `None` is the host without scaling: its scale
            is 1 (TADAM's 7.5), and its Euclidean distance that of raw embeddings, undivided
            (kappa = 1).
        metric: See `hosts.base.Metric`; the host's own when not given: Euclidean for `pn`, cosine
            for `matching`, for `tadam` the norm without a scaler and Euclidean with one.
        preset: `default`, `reproduction`, `paper` or `released`; see `presets`.
        shot_offset: Let the scale grow with a class's number of supports; see `ScaledModel`.
        backbone_options: Further arguments of the backbone.
        scaler_options: Further arguments of the scaler.
        host_options: Further arguments of the host.
        objective_options: Further arguments of the objective.

    Example:
        >>> model = create("pn", backbone="conv4", scaler="d-svs", metric="cosine")
        >>> model.scaler
        DSVS(size=1600, family=hierarchical, kl_weight=0.04, lr=0.02, sigma learned)
    """
    if scaler_options and not isinstance(scaler, str):
        raise ValueError(f"scaler_options need the name of a scaler, got scaler={scaler!r}.")
    if backbone_options and not isinstance(backbone, str):
        raise ValueError("backbone_options need the name of a backbone, got a module.")
    if not isinstance(scaler, str | Scaler | None):
        raise ValueError(f"Expected the name of a scaler, a Scaler or None, got {scaler!r}.")
    for option in ("backbone", "metric"):
        if option in (host_options or {}):
            raise ValueError(f"Give {option} as an argument, not among the host_options.")
    name = scaler if isinstance(scaler, str | None) else SCALERS.name_of(scaler) or ""
    chosen = choose_options(host, scaler=name, metric=metric, preset=preset)
    if isinstance(backbone, str):
        backbone = BACKBONES.create(backbone, **(backbone_options or {}))
    built = HOSTS.create(host, backbone=backbone, **{**chosen["host"], **(host_options or {})})
    if scaler is None:
        scaler = Fixed(alpha=HOSTS[host].default_scale)
    elif isinstance(scaler, str):
        sized = {"dim": built.out_dim} if "dim" in SCALERS.options(scaler) else {}
        options = {**sized, **chosen["scaler"], **(scaler_options or {})}
        scaler = SCALERS.create(scaler, **options)
    options = {**chosen["objective"], **(objective_options or {})}
    for option in options:
        if option not in Objective.__dataclass_fields__:
            raise unknown("option of the objective:", option, Objective.__dataclass_fields__)
    return ScaledModel(built, scaler, Objective(**options), shot_offset=shot_offset)


def choose_options(
    host: str, *, scaler: str | None, metric: Metric | None, preset: str
) -> dict[str, dict[str, Any]]:
    """Choose options of host, scaler and objective by a preset; given options override them.

    Args:
        host: Name of the host.
        scaler: Name of the scaler; empty for one that is not registered, `None` for none.
        metric: The metric, or `None` for the host's own.
        preset: Name of the preset.
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    bundle, family = PRESETS[preset], HOSTS[host]
    if metric is None:
        metric = family.default_metric if scaler is None else family.scaled_metric
    if scaler is None:
        plain = {"kappa": 1.0, "normalize": "none"} if metric == "euclidean" else {}
        own = {key: plain[key] for key in plain if key in HOSTS.options(host)}
        own |= bundle.unscaled.get(metric, {})
    else:
        own = {**bundle.host, **bundle.host_for.get(scaler, {})}
    return {
        "host": {"metric": metric, **own},
        "scaler": dict(bundle.scaler.get(scaler or "", {})),
        "objective": dict(bundle.objective.get(scaler or "", {})),
    }
