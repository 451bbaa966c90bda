"""`check_scaler`, `check_host`, `check_backbone`: what each family promises."""

import inspect
import json
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import LogNormal, Normal

from varscale.backbones import BACKBONES
from varscale.core import Registry
from varscale.hosts import HOSTS, Host
from varscale.scalers import SCALERS, Scaler
from varscale.testing.devices import META, stay_on
from varscale.testing.examples import N_QUERY, N_TASKS, SHOTS, SIZES, build, example_episode
from varscale.testing.examples import make_example as example
from varscale.testing.joined import MODEL_CHECKS, check_devices, check_gradients, expect, wake


def check_scaler(
    scaler: str | type[Scaler] | Scaler, *, host: str | type[Host] = "pn", **options: Any
) -> None:
    """Raise AssertionError if a scaler breaks the contract of scalers.

    Args:
        scaler: A registered name, a class, or an instance.
        host: The host to join it with.
        **options: Options of the scaler.

    Example:
        >>> check_scaler("svs", init=10.0)
    """
    cls = _check_class(SCALERS, scaler, Scaler)

    def make() -> Any:
        return example(host, scaler, scaler_options=options)

    model = make()
    built = model.scaler
    name, dim, size = cls.__name__, model.host.out_dim, built.size
    task = torch.linspace(0, 1, 6 * dim).view(2, 3, dim).sin()
    q = built(task)
    expect(
        isinstance(q, Normal | LogNormal),
        f"Expected {name}.forward to return a Normal or LogNormal of torch.distributions, got "
        f"{type(q).__name__}.",
    )
    expect(
        q.batch_shape == (2, 3, size),
        f"Expected q of batch shape (*task, size) = {(2, 3, size)} from {name} for tasks of shape "
        f"{tuple(task.shape)}, got {tuple(q.batch_shape)}. Expand it: "
        "mean.expand(*task.shape[:-1], self.size).",
    )
    expect(
        q.mean.isfinite().all() and (q.stddev >= 0).all(),
        f"Expected a finite mean and a standard deviation >= 0 from {name}, got "
        f"{_range(q.mean)} and {_range(q.stddev)}.",
    )
    wake(built)
    mean = built(task).mean
    differs = bool((mean != mean[0, 0]).any())
    wanted, found = ("True", "depends") if differs else ("False", "does not depend")
    expect(
        built.local == differs,
        f"Expected {name}.local to say whether q depends on the task, got local = {built.local}; "
        f"q {found} on it. Set local = {wanted} in the class.",
    )
    kl = built.kl(q)
    expect(
        kl.shape == (2, 3) and (kl >= -1e-4).all(),
        f"Expected {name}.kl to return a number >= 0 for each task, of shape (2, 3), got shape "
        f"{tuple(kl.shape)} and {_range(kl)}. Sum it over the entries of alpha.",
    )
    drawn = built.sample(q, torch.zeros(7, 2, 3, size))
    median = q.icdf(torch.full_like(q.mean, 0.5)).expand(7, 2, 3, -1)
    expect(
        drawn.shape == median.shape and torch.allclose(drawn, median, rtol=1e-4),
        f"Expected {name}.sample to return the median of q at noise 0, with the noise's leading "
        f"axes: shape {tuple(median.shape)}, got {tuple(drawn.shape)}, {_range(drawn)}.",
    )
    expect(repr(built).startswith(name), f"Expected repr to begin with {name}, got {built!r}.")
    for dtype in (torch.float16, torch.float64):
        expect(
            built(task.to(dtype)).mean.isfinite().all(),
            f"Expected {name} to take tasks of {dtype}, got a mean that is not finite.",
        )
    moved, task = make().scaler.to(META), task.to(META)
    with stay_on(META, name):
        moved(task)
    for check in MODEL_CHECKS:
        check(make)


def check_host(
    host: str | type[Host] | Host, *, scaler: str | type[Scaler] = "svs", **options: Any
) -> None:
    """Raise AssertionError if a host breaks the contract of hosts.

    Args:
        host: A registered name, a class, or an instance, whose backbone has an `in_shape`.
        scaler: The scaler to join it with.
        **options: Options of the host, other than the backbone.

    Example:
        >>> check_host("matching", kappa=1.0)
    """
    cls = _check_class(HOSTS, host, Host)

    def make() -> Any:
        return example(host, scaler, host_options=options)

    model = make().eval()
    built, name, way = model.host, cls.__name__, len(SHOTS)
    episode = example_episode(model)
    labels = episode.support_labels
    with torch.no_grad():
        embedded = built.embed(episode)
        shapes = [tuple(x.shape) for x in embedded]
        wanted = [(N_TASKS, n, built.out_dim) for n in (sum(SHOTS), N_QUERY)]
        expect(
            shapes == wanted,
            f"Expected {name}.embed to return supports and queries of shapes {wanted}, got "
            f"{shapes}.",
        )
        support, query = embedded
        references = built.references(support, labels, n_way=way)
        expect(
            references.ndim == 3 and references.shape[::2] == (N_TASKS, built.out_dim),
            f"Expected {name}.references to return (task, reference, dim) = ({N_TASKS}, any, "
            f"{built.out_dim}), got {tuple(references.shape)}.",
        )
        ones = torch.ones(N_TASKS, 1)
        alphas: list[Tensor | float] = [
            1.0, ones, ones.expand(-1, built.out_dim), ones.expand(4, -1, -1)
        ]  # fmt: skip
        for alpha in alphas:
            leading = alpha.shape[:-2] if isinstance(alpha, Tensor) else ()
            logits = built.logits(query, references, labels, alpha, n_way=way)
            shape = (*leading, N_TASKS, N_QUERY, way)
            given = tuple(alpha.shape) if isinstance(alpha, Tensor) else "a number"
            expect(
                logits.shape == shape and logits.isfinite().all(),
                f"Expected finite logits of shape {shape} from {name} at an alpha of shape {given},"
                f" got {tuple(logits.shape)}, {_range(logits)}. self.compare handles every alpha.",
            )
        once = built.logits(query, references, labels, ones, n_way=way)
        twice = built.logits(query, references, labels, 2 * ones, n_way=way)
        expect(
            not torch.equal(once, twice),
            f"Expected the logits of {name} to depend on alpha, got the same at 1 and 2. Multiply "
            "by it, or call self.compare.",
        )
        moved = (labels + 1) % way
        again = built.references(support, moved, n_way=way)
        turned = built.logits(query, again, moved, ones, n_way=way).roll(-1, -1)
        expect(
            torch.allclose(once.softmax(-1), turned.softmax(-1), atol=1e-4),
            f"Expected {name} to give a class the same probability under another label, got "
            f"others: up to {float((once.softmax(-1) - turned.softmax(-1)).abs().max()):.2g} "
            "apart. Score k must belong to the supports whose label is k.",
        )
        alone = built.logits(query[:, :1], references, labels, ones, n_way=way)
        expect(
            torch.allclose(alone.softmax(-1), once[:, :1].softmax(-1), atol=1e-4),
            f"Expected the answer of {name} to a query to depend on no other query, got another "
            "for one query than for all. Do not take means over queries.",
        )
    for check in MODEL_CHECKS:
        check(make)


def check_backbone(backbone: str | type[nn.Module] | nn.Module, **options: Any) -> None:
    """Raise AssertionError if a backbone breaks the contract of backbones.

    Args:
        backbone: A registered name, a class, or an instance: a module with `in_shape` and
            `out_dim`.
        **options: Options of the backbone. Sizes that a dataset gives (`dim`, `image_size`,
            `in_channels`) are filled in where they have no default.

    Example:
        >>> check_backbone("linear", dim=4)
    """
    cls = _check_class(BACKBONES, backbone, nn.Module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = build(BACKBONES, backbone, options, **SIZES).eval()
    name = cls.__name__
    shape, dim = getattr(built, "in_shape", None), getattr(built, "out_dim", None)
    expect(
        isinstance(shape, tuple) and all(isinstance(n, int) for n in shape),
        f"Expected {name}.in_shape to be the shape of one item, a tuple of integers such as (84, "
        f"84, 3), got {shape!r}. Set it in __init__.",
    )
    expect(
        isinstance(dim, int) and dim > 0,
        f"Expected {name}.out_dim to be the embedding size, a positive integer, got {dim!r}. Set "
        "it in __init__.",
    )
    assert isinstance(shape, tuple)
    items = torch.linspace(0, 9, 3 * torch.Size(shape).numel()).sin().abs().view(3, *shape)
    with torch.no_grad():
        out, alone = built(items), built(items[:1])
    expect(
        out.shape == (3, dim),
        f"Expected {name} to turn items of shape {tuple(items.shape)} into embeddings of shape "
        f"{(3, dim)}, got {tuple(out.shape)}. Is out_dim right, and is the result flat?",
    )
    expect(out.isfinite().all(), f"Expected finite embeddings from {name}, got {_range(out)}.")
    expect(
        torch.allclose(out[:1], alone, rtol=1e-3, atol=1e-4),
        f"Expected {name} in evaluation mode to embed an item alone as among others, got another "
        "embedding. Do not take means over the batch outside training.",
    )
    expect(name in repr(built), f"Expected repr to name {name}, got {built!r}.")

    def make() -> Any:
        return example(backbone=backbone, backbone_options=options)

    check_gradients(make)
    check_devices(make)


def _check_class(registry: Registry[Any], member: object, base: type) -> type:
    """The class of a member by name, class or instance, if it is described and can be recorded."""
    if isinstance(member, str):
        member = registry[member]
    cls = member if isinstance(member, type) else type(member)
    kind = registry.kind
    expect(
        issubclass(cls, base),
        f"Expected a {kind} that inherits from {base.__name__}, got {cls.__name__}. Write: class "
        f"{cls.__name__}({base.__name__}).",
    )
    if cls.__module__.startswith("torch."):  # such as a Sequential of the user's
        return cls
    expect(
        not inspect.isabstract(cls),
        f"Expected {cls.__name__} to implement every method of a {kind}, got none for "
        f"{', '.join(sorted(getattr(cls, '__abstractmethods__', ())))}.",
    )
    first = (cls.__doc__ or "").partition("\n")[0].rstrip()
    expect(
        first.endswith((".", ":")),
        f"Expected a docstring of {cls.__name__} whose first line is a sentence, got {first!r}. "
        "varscale ls shows it.",
    )
    alone: Registry[Any] = Registry(kind)
    alone.register(cls.__name__)(cls)
    for option, default in alone.defaults(cls.__name__).items():
        try:
            json.dumps(default)
        except TypeError as error:
            raise AssertionError(
                f"Expected a default of {cls.__name__}'s option {option!r} that a config file can "
                f"hold (a number, text, true, None, a list), got {default!r}. Take a name instead."
            ) from error
    return cls


def _range(x: Tensor) -> str:
    x = x.detach()
    return f"values from {float(x.min()):g} to {float(x.max()):g}" if x.numel() else "no values"
