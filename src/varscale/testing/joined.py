"""What a host and a scaler promise together, as a model."""

import torch
from safetensors.torch import load, save
from torch import nn

from varscale.learn import optimizers
from varscale.model import ScaledModel
from varscale.testing.devices import META, read_nothing, stay_on
from varscale.testing.examples import N_QUERY, N_TASKS, SHOTS, Make, example_episode


def expect(condition: object, message: str) -> None:
    """Raise AssertionError with a message, under `python -O` too."""
    if not condition:
        raise AssertionError(message)


def describe(model: ScaledModel) -> str:
    """The members of a model, for a message."""
    parts = (model.host, model.scaler, model.host.backbone)
    return " with ".join(type(part).__name__ for part in parts)


@torch.no_grad()
def wake(module: nn.Module) -> None:
    """Set parameters that are 0 to 0.3: a gate that is closed at first hides what is behind it."""
    for parameter in module.parameters():
        if not parameter.any():
            nn.init.constant_(parameter, 0.3)


def check_gradients(make: Make) -> None:
    """The loss has the right shapes, and its gradient reaches every parameter."""
    model = make()
    wake(model)
    loss = model.loss(example_episode(model), index=0)
    logits, alpha = (N_TASKS, N_QUERY, len(SHOTS)), (N_TASKS, model.scaler.size)
    for name, value, shape in (("logits", loss.logits, logits), ("alpha", loss.alpha, alpha)):
        expect(
            value.shape == shape,
            f"Expected {name} of shape {shape} from {describe(model)}, got {tuple(value.shape)}.",
        )
    loss.total.backward()
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        expect(
            grad is not None,
            f"Expected the loss of {describe(model)} to depend on {name}, got no gradient. Use it "
            "in forward without .detach() or .item(), or make it a buffer (register_buffer).",
        )
        assert grad is not None
        expect(
            grad.isfinite().all(),
            f"Expected a finite gradient of {name} in {describe(model)}, got NaN or infinity. Look "
            "for a division by 0, or a square root or logarithm of 0.",
        )
        cancelled = name.startswith("host.backbone.") and name.endswith("bias")  # by batch norm
        expect(
            cancelled or grad.abs().sum() > 0,
            f"Expected a gradient of {name} that is not 0, got 0 everywhere in {describe(model)}. "
            "Does forward use it, and does logits use alpha?",
        )


def check_optimizers(make: Make) -> None:
    """Every parameter is learned exactly once."""
    model = make()
    learned = [
        id(parameter)
        for optimizer in optimizers(model, queries_per_task=N_QUERY)
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    wrong = [name for name, p in model.named_parameters() if learned.count(id(p)) != 1]
    expect(
        not wrong and len(learned) == len(list(model.parameters())),
        f"Expected every parameter of {describe(model)} in one optimiser, got other numbers for "
        f"{', '.join(wrong) or 'some'}. log_parameters, if you write it, returns parameters of the "
        "scaler; host and scaler share none.",
    )


def check_predictions(make: Make) -> None:
    """Predictions are distributions over classes, at the mean and over draws."""
    model = make().eval()
    for samples in (0, 3):
        p = model(example_episode(model), samples=samples).detach().exp()
        shape = (N_TASKS, N_QUERY, len(SHOTS))
        expect(
            p.shape == shape and torch.allclose(p.sum(-1), torch.ones(shape[:-1]), atol=1e-5),
            f"Expected probabilities of shape {shape} that add up to 1 from {describe(model)} "
            f"with samples={samples}, got shape {tuple(p.shape)} and a sum of "
            f"{float(p.sum(-1).flatten()[0]):g}. logits must be finite, and keep the leading axes "
            "of alpha.",
        )


def check_saving(make: Make) -> None:
    """A model that learned a step predicts the same after it is saved and loaded."""
    model = make()
    episode = example_episode(model)
    steppers = optimizers(model, queries_per_task=N_QUERY)
    model.loss(episode, index=0).total.backward()
    for optimizer in steppers:
        optimizer.step()
    state = load(save({k: v.contiguous() for k, v in model.state_dict().items()}))
    twin = make()
    twin.load_state_dict(state)
    expect(
        torch.equal(twin.eval()(episode), model.eval()(episode)),
        f"Expected the same predictions of {describe(model)} after saving and loading, got others. "
        "Keep all that changes in training in parameters or buffers, and draw nothing at random.",
    )


def check_precision(make: Make) -> None:
    """Half precision ends with the embedding: all else is that of float32, bit for bit."""
    model = make().eval()
    episode = example_episode(model)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            embeddings = model.host.embed(episode)
            mixed, log_p = model.loss(episode, index=0), model(episode)
        model.host.embed = lambda episode: embeddings  # type: ignore[method-assign]
        again, log_p_again = model.loss(episode, index=0), model(episode)
    names = ("total", "nll", "kl", "aux", "logits", "alpha")
    pairs = {name: (getattr(mixed, name), getattr(again, name)) for name in names}
    pairs |= {"q.mean": (mixed.q.mean, again.q.mean), "log p": (log_p, log_p_again)}
    for name, (half, full) in pairs.items():
        expect(
            half.dtype == torch.float32 and torch.equal(half, full),
            f"Expected {name} of {describe(model)} in float32 under bfloat16 autocast, as without, "
            f"got {half.dtype} or other values. Do not change autocast or dtypes.",
        )


def check_devices(make: Make) -> None:
    """A step and a prediction work on a device without values."""
    model = make().to(META)
    steppers = optimizers(model, queries_per_task=N_QUERY)
    episode = example_episode(model).to(META)
    with stay_on(META, f"a step of {describe(model)}"):
        model.loss(episode, index=0).total.backward()
        for optimizer in steppers:
            optimizer.step()
    model.eval()
    with stay_on(META, f"a prediction of {describe(model)}"), torch.no_grad():
        log_p = model(episode, samples=3)
    expect(log_p.is_meta, f"Expected a prediction on {META}, got one on {log_p.device}.")


def check_nothing_read(make: Make) -> None:
    """A head reads no value back from its device, which would have to wait."""
    model = make().eval()
    episode = example_episode(model)
    support, query = model.host.embed(episode)
    labels = episode.support_labels
    with read_nothing(describe(model)):
        log_p = model.predict(support, labels, query, n_way=episode.n_way, checked=True)
    torch.testing.assert_close(log_p, model(episode))


MODEL_CHECKS = (
    check_gradients,
    check_optimizers,
    check_predictions,
    check_saving,
    check_precision,
    check_devices,
    check_nothing_read,
)
"""All that is checked of a model."""
