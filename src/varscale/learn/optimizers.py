"""Optimisers of a model, and a scaler that learns beside an optimiser of yours."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from varscale.learn.log_adam import LogAdam
from varscale.model import ScaledModel
from varscale.scalers import Scaler
from varscale.scalers.stochastic import LOG_LR

Group = dict[str, Any]

FUSED = ("cpu", "cuda", "mps", "xpu")
"""Devices that have the fused optimisers."""


def optimizers(
    model: ScaledModel,
    *,
    queries_per_task: int,
    lr: float = 1e-3,
    algorithm: str = "adam",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
) -> list[Optimizer]:
    """Make one optimiser for the weights, and one for what a scaler learns at its own rate.

    Both take their gradients from the same backward pass of `Loss.total`. Either is left out when
    it has nothing to learn.

    Args:
        model: The model.
        queries_per_task: Queries per task, over all classes.
        lr: Learning rate of the weights.
        algorithm: `adam` or `sgd`.
        momentum: Momentum of `sgd`.
        weight_decay: Weight decay of the host's convolutions and matrices; all else has none.
    """
    groups = decay_groups(model.host.parameters(), weight_decay)
    if isinstance(model.log_shot_offset, nn.Parameter):
        groups.append({"params": [model.log_shot_offset], "weight_decay": 0.0})
    own = steps_itself(model.scaler)
    groups += scaler_groups(model.scaler)
    weights = weights_optimizer(groups, lr=lr, algorithm=algorithm, momentum=momentum)
    found = [] if weights is None else [weights]
    if weights is not None and not own:
        project_after(weights, model.scaler)
    if own:
        factor = model.objective.scaler_factor(queries_per_task)
        found.append(scaler_optimizer(model.scaler, factor))
    return found


def one_optimizer(model: ScaledModel, lr: float) -> Optimizer:
    """Make one Adam for all that a model learns, its scale included."""
    optimizer = Adam(model.parameters(), lr=lr, fused=next(model.parameters()).device.type in FUSED)
    project_after(optimizer, model.scaler)
    return optimizer


def own_parameters(scaler: Scaler) -> list[nn.Parameter]:
    """What a scaler learns at a rate of its own, not by the main optimiser."""
    if own := scaler.log_parameters():
        return own
    return list(scaler.parameters()) if scaler.own_rate and scaler.lr is not None else []


def steps_itself(scaler: Scaler) -> bool:
    """Whether a scaler learns anything at a rate of its own, not by the main optimiser."""
    return bool(own_parameters(scaler))


def own_lr(scaler: Scaler) -> float:
    """The learning rate of a scaler that steps itself."""
    return LOG_LR if scaler.lr is None or not scaler.own_rate else scaler.lr


def scaler_groups(scaler: Scaler) -> list[Group]:
    """What the main optimiser learns of a scaler, as groups without weight decay."""
    own = {id(p) for p in own_parameters(scaler)}
    parameters = [p for p in scaler.parameters() if id(p) not in own]
    rate = {} if scaler.lr is None or scaler.own_rate else {"lr": scaler.lr}
    return [{"params": parameters, "weight_decay": 0.0, **rate}] if parameters else []


def scaler_optimizer(scaler: Scaler, queries_per_task: int) -> Optimizer:
    """The optimiser of what a scaler learns at a rate of its own.

    A scale in log space takes the steps of `LogAdam` (M33). The published one takes plain SGD steps
    on the query-summed likelihood (M13).

    Args:
        scaler: The scaler.
        queries_per_task: Over all classes. The loss is a mean over queries, so the rate of SGD
            takes the factor, and one backward pass serves all parameters.
    """
    if queries_per_task < 1:
        raise ValueError(f"Expected queries_per_task >= 1, got {queries_per_task!r}.")
    parameters, lr = own_parameters(scaler), own_lr(scaler)
    if not parameters:
        raise ValueError(
            f"{type(scaler).__name__} has no learning rate of its own; use `follow`, or give its "
            "parameters to the main optimiser."
        )
    optimizer: Optimizer
    if scaler.log_parameters():
        optimizer = LogAdam(parameters, lr)
    else:
        optimizer = SGD(parameters, lr=lr * queries_per_task)
    project_after(optimizer, scaler)
    return optimizer


def project_after(optimizer: Optimizer, scaler: Scaler) -> None:
    """Bring a scaler's parameters back into their domain after every step of an optimiser."""
    optimizer.register_step_post_hook(lambda *_: scaler.project_())


def follow(scaler: Scaler, optimizer: Optimizer, *, queries_per_task: int) -> None:
    """Learn a scaler beside an optimiser of yours: whenever it steps, so does the scaler.

    The parameters join it as a group, so that its `zero_grad`, gradient scaling and skipped steps
    hold for them too. What a scaler learns at its own rate takes its own step (`scaler_optimizer`)
    instead of the optimiser's, at a rate that no scheduler changes. Call this before you make a
    scheduler. The running averages of a log-space scale are not in the optimiser's state dict.

    Args:
        scaler: The scaler.
        optimizer: Optimiser of the embedding.
        queries_per_task: Queries per task; the loss is taken to be a mean over them.
    """
    for group in scaler_groups(scaler):
        optimizer.add_param_group(group)
    parameters = own_parameters(scaler)
    if not parameters:
        project_after(optimizer, scaler)
        return
    own, lr = scaler_optimizer(scaler, queries_per_task), own_lr(scaler)
    optimizer.add_param_group(_ConstantRate(params=parameters, weight_decay=0.0, lr=lr))
    kept: list[Tensor | None] = []

    def hide() -> None:
        kept[:] = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None

    def before(_: Optimizer, args: Any, named: Any) -> tuple[Any, Any] | None:
        hide()
        closure = named.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            return None

        def evaluate() -> Any:  # its gradients are the ones to step by
            value = closure()
            hide()
            return value

        return args[:1], {**named, "closure": evaluate}

    def after(*_: Any) -> None:
        for p, gradient in zip(parameters, kept, strict=True):
            p.grad = gradient
        if (overflow := getattr(optimizer, "found_inf", None)) is not None and overflow.item():
            return
        if (factor := getattr(optimizer, "grad_scale", None)) is not None:
            for p in parameters:  # a fused optimiser unscales its own gradients as it steps
                if p.grad is not None:
                    p.grad.div_(factor)
        own.step()

    def keep_rate(_: Optimizer) -> None:
        for place, group in enumerate(optimizer.param_groups):
            if any(p is parameters[0] for p in group["params"]):
                optimizer.param_groups[place] = _ConstantRate({**group, "lr": lr})

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
    optimizer.register_load_state_dict_post_hook(keep_rate)


class _ConstantRate(dict[str, Any]):
    """A parameter group with the learning rate it steps at, whatever a scheduler says."""

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "lr" or "lr" not in self:  # a copy is filled item by item
            super().__setitem__(key, value)


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[Group]:
    """Parameters as groups: convolutions and matrices decay; biases, norms and numbers do not."""
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def weights_optimizer(
    groups: list[Group], *, lr: float, algorithm: str, momentum: float
) -> Optimizer | None:
    """The optimiser of weights, `adam` or `sgd`; `None` when there are none."""
    if algorithm not in ("adam", "sgd"):
        raise ValueError(f"Expected algorithm 'adam' or 'sgd', got {algorithm!r}.")
    groups = [group for group in groups if group["params"]]
    if not groups:
        return None
    fused = groups[0]["params"][0].device.type in FUSED
    if algorithm == "adam":
        return Adam(groups, lr=lr, fused=fused)
    return SGD(groups, lr=lr, momentum=momentum, fused=fused)
