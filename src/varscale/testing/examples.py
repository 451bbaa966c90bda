"""Small models and tasks to try a member with."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from varscale.backbones import BACKBONES
from varscale.core import Episode, Registry
from varscale.core.random import normal
from varscale.core.registry import Options
from varscale.hosts import HOSTS, Host
from varscale.model import ScaledModel, create
from varscale.scalers import SCALERS, Scaler

T = TypeVar("T")

Make = Callable[[], ScaledModel]
"""Makes the same model again and again."""

SHOTS, N_QUERY, N_TASKS = (2, 1, 3), 5, 2
"""An example has two tasks of three classes, with these supports, and five queries."""

SMALL: dict[str, Options] = {
    "tiny": {},
    "resnet12": {"in_channels": 1, "image_size": 8, "width": 1 / 16},
}
"""Backbones to try hosts and scalers with: any, and one that a task can condition."""

SIZES = {"dim": 6, "image_size": 16, "in_channels": 3}
"""What a dataset would tell a backbone, if it has no default for it."""


def make_example(
    host: str | type[Host] | Host = "pn",
    scaler: str | type[Scaler] | Scaler = "svs",
    backbone: str | type[nn.Module] | nn.Module | None = None,
    *,
    host_options: Options | None = None,
    scaler_options: Options | None = None,
    backbone_options: Options | None = None,
) -> ScaledModel:
    """Build a small model around a member by name, class or instance; always with equal weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if backbone is None:
            built = _small_backbone(host, scaler)
        else:
            built = build(BACKBONES, backbone, backbone_options or {}, **SIZES)
        dim = host.out_dim if isinstance(host, Host) else built.out_dim
        chosen: Any = scaler
        if not (isinstance(scaler, str) and isinstance(host, str)):  # `create` knows names
            chosen = build(SCALERS, scaler, scaler_options or {}, dim=dim)
            scaler_options = None
        if isinstance(host, str):
            return create(
                host,
                backbone=built,
                scaler=chosen,
                scaler_options=scaler_options,
                host_options=host_options,
            )
        filled = {"backbone": built, "metric": host.scaled_metric}
        return ScaledModel(build(HOSTS, host, host_options or {}, **filled), chosen)


def build(
    registry: Registry[Any], member: str | type[T] | T, options: Options, **filled: Any
) -> Any:
    """Build a member by its name or class, or copy an instance.

    Args:
        registry: Its family.
        member: The name, class or instance.
        options: Its options.
        **filled: Options that it gets if it has them, without a default.
    """
    if isinstance(member, str):
        member = registry[member]
    if not isinstance(member, type):
        if options:
            raise ValueError(f"Options need a name or a class, got {member} and {options}.")
        return copy.deepcopy(member)
    alone: Registry[Any] = Registry(registry.kind)
    alone.register(member.__name__)(member)
    known = alone.options(member.__name__)
    undecided = [k for k, p in known.items() if p.default is None or p.default is p.empty]
    needed = {name: value for name, value in filled.items() if name in undecided}
    return alone.create(member.__name__, **{**needed, **options})


def _small_backbone(host: object, scaler: object) -> Any:
    """A backbone that suits both, in size and in what it can be conditioned by."""
    family = HOSTS[host] if isinstance(host, str) else host
    if getattr(family, "conditioned", False):
        return BACKBONES.create("resnet12", **SMALL["resnet12"])
    dim = (scaler.dim or scaler.size) if isinstance(scaler, Scaler) else 1
    return BACKBONES.create("tiny") if dim == 1 else BACKBONES.create("linear", dim=dim)


def example_episode(model: ScaledModel) -> Episode:
    """Tasks of random items, of the shape that the model's backbone takes."""
    item: tuple[int, ...] = tuple(model.host.backbone.in_shape)  # type: ignore[arg-type]
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(SHOTS)])
    size = torch.Size(item).numel()
    items = normal(0, "testing", 0, N_TASKS, (len(labels) + N_QUERY) * size)
    items = items.float().view(N_TASKS, -1, *item)
    return Episode(
        items[:, : len(labels)],
        torch.stack([labels, labels.flip(0)]),
        items[:, len(labels) :],
        torch.arange(N_QUERY).remainder(len(SHOTS)).expand(N_TASKS, -1),
        n_way=len(SHOTS),
    )
