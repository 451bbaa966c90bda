"""The front door: a model from the names of its parts."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from varscale.backbones import BACKBONES
from varscale.hosts import HOSTS
from varscale.hosts.base import Metric
from varscale.model import ScaledModel
from varscale.objective import Objective
from varscale.presets import PRESETS
from varscale.registry import unknown
from varscale.scalers import SCALERS, Fixed, Scaler

Options = Mapping[str, Any] | None


def create(
    host: str = "pn",
    *,
    backbone: str | nn.Module = "conv4",
    scaler: str | Scaler | None = None,
    metric: Metric | None = None,
    preset: str = "default",
    backbone_options: Options = None,
    scaler_options: Options = None,
    host_options: Options = None,
    objective_options: Options = None,
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
        preset: `default`, `paper` or `released`; see `presets`.
        backbone_options: Further arguments of the backbone.
        scaler_options: Further arguments of the scaler.
        host_options: Further arguments of the host.
        objective_options: Further arguments of the objective.

    Example:
        >>> model = create("pn", backbone="conv4", scaler="d-svs", metric="cosine")
        >>> model.scaler
        DSVS(size=1600, prior=N(1, 1600²), kl_weight=0.01, lr=16, scale=0.2)
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    if scaler_options and not isinstance(scaler, str):
        raise ValueError(f"scaler_options need the name of a scaler, got scaler={scaler!r}.")
    if backbone_options and not isinstance(backbone, str):
        raise ValueError("backbone_options need the name of a backbone, got a module.")
    for option in objective_options or {}:
        if option not in Objective.__dataclass_fields__:
            raise unknown("option of the objective:", option, Objective.__dataclass_fields__)
    bundle = PRESETS[preset]
    if not isinstance(scaler, str | Scaler | None):
        raise ValueError(f"Expected the name of a scaler, a Scaler or None, got {scaler!r}.")
    for option in ("backbone", "metric"):
        if option in (host_options or {}):
            raise ValueError(f"Give {option} as an argument, not among the host_options.")
    family = HOSTS[host]
    if metric is None:
        metric = family.default_metric if scaler is None else family.scaled_metric
    name = (scaler if isinstance(scaler, str) else SCALERS.name_of(scaler)) or ""
    if scaler is None:
        plain = {"kappa": 1.0, "normalize": "none"} if metric == "euclidean" else {}
        from_preset = {key: plain[key] for key in plain if key in HOSTS.options(host)}
        from_preset |= bundle.unscaled.get(metric, {})
    else:
        from_preset = {**bundle.host, **bundle.host_for.get(name, {})}
    if isinstance(backbone, str):
        backbone = BACKBONES.create(backbone, **(backbone_options or {}))
    options = {"metric": metric, **from_preset, **(host_options or {})}
    built = HOSTS.create(host, backbone=backbone, **options)

    if scaler is None:
        scaler = Fixed(alpha=family.default_scale)
    elif isinstance(scaler, str):
        sized = {"dim": built.out_dim} if "dim" in SCALERS.options(scaler) else {}
        options = {**sized, **bundle.scaler.get(scaler, {}), **(scaler_options or {})}
        scaler = SCALERS.create(scaler, **options)
    objective = Objective(**{**bundle.objective.get(name, {}), **(objective_options or {})})
    return ScaledModel(built, scaler, objective)
