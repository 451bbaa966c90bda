"""`LogitScale` against plain loops, and under everything that people put around a module."""

import copy
import io
import json
import math
import pickle
import shutil
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn, vmap
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, stack_module_state
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from varscale import functional
from varscale.plug import LogitScale, logit_scale
from varscale.plug.logit_scale import STRIDE, initial_value

WAY = 5


@pytest.fixture
def batch(generator):
    cosines = torch.rand(12, WAY, generator=generator, dtype=torch.float64) * 2 - 1
    return cosines, torch.arange(12) % WAY


def double(**options):
    return LogitScale(**options).double()


def loss_of(scale, cosines, labels):
    return F.cross_entropy(scale(cosines), labels) + scale.kl()


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-12, atol=1e-12)


# Formulas, by plain loops


def oracle_information(logits):
    """Variance of a row's logits under its softmax, averaged over rows."""
    found = []
    for row in logits.tolist():
        weights = [math.exp(v - max(row)) for v in row]
        p = [w / sum(weights) for w in weights]
        mean = sum(a * v for a, v in zip(p, row, strict=True))
        found.append(sum(a * (v - mean) ** 2 for a, v in zip(p, row, strict=True)))
    return sum(found) / len(found)


def oracle_start(cosines):
    """Square root of ln K over the mean variance of a row."""
    variances = []
    for row in cosines.tolist():
        mean = sum(row) / len(row)
        variances.append(sum((v - mean) ** 2 for v in row) / len(row))
    return math.sqrt(math.log(len(cosines[0])) / (sum(variances) / len(variances)))


def test_formulas(batch):
    cosines, _ = batch
    scale = double()
    logits = scale(cosines)
    start = oracle_start(cosines)
    torch.testing.assert_close(logits, start * cosines)
    information = oracle_information(start * cosines)
    assert scale.information.item() == pytest.approx(information)
    variance = 1 / (len(cosines) * information + 1 / 9)
    q = scale.posterior()
    assert q.loc.item() == pytest.approx(math.log(start))
    assert q.scale.item() == pytest.approx(math.sqrt(variance))
    shift = math.log(start) - math.log(10)
    kl = math.log(3 / math.sqrt(variance)) + (variance + shift**2) / 18 - 0.5
    assert scale.kl().item() == pytest.approx(kl / 12)
    assert scale.eval().alpha.item() == pytest.approx(start)
    assert q.mean.item() == pytest.approx(start * math.exp(variance / 2))


def test_the_information_is_a_running_mean(batch):
    cosines, _ = batch
    scale = double(init=3.0)
    scale(cosines)
    scale(cosines[:4])
    scale.eval()(cosines[4:])  # evaluation tells nothing
    first, second = oracle_information(3 * cosines), oracle_information(3 * cosines[:4])
    assert scale.information.item() == pytest.approx(0.99 * first + 0.01 * second)
    assert scale.seen.item() == 16


def test_the_information_is_the_second_derivative(batch):
    """The expected curvature of a row's likelihood in log alpha, by finite differences."""
    cosines, _ = batch
    p = (3.0 * cosines).softmax(-1)

    def expected(log_alpha):
        return -(p * (math.exp(log_alpha) * cosines).log_softmax(-1)).sum(-1).mean().item()

    at, h = math.log(3.0), 1e-4
    curvature = (expected(at + h) - 2 * expected(at) + expected(at - h)) / h**2
    scale = double(init=3.0)
    scale(cosines)
    assert scale.information.item() == pytest.approx(curvature, rel=1e-5)


def test_rows_that_are_given_replace_those_counted(batch):
    scale = double(init=3.0, rows=1000)
    scale(batch[0])
    assert scale.seen.item() == 12
    variance = 1 / (1000 * scale.information.item() + 1 / 9)
    assert scale.posterior().scale.item() == pytest.approx(math.sqrt(variance))
    kl = functional.gaussian_kl(
        torch.tensor(math.log(3.0)).double(), torch.tensor(variance).double().sqrt(),
        math.log(10), 3.0,
    )  # fmt: skip
    assert scale.kl().item() == pytest.approx(kl.item() / 1000)


@pytest.mark.parametrize("dim", [2, 64, 4096])
@pytest.mark.parametrize("way", [2, 20, 5000])
def test_it_begins_between_guessing_and_certainty(generator, dim, way):
    """At any size, the entropy begins well inside its range."""
    query, classes = (
        F.normalize(torch.randn(n, dim, generator=generator), dim=-1) for n in (16, way)
    )
    p = LogitScale()(query @ classes.T).softmax(-1)
    entropy = -(p * p.clamp_min(1e-30).log()).sum(-1).mean().item()
    assert 0.2 < entropy / math.log(way) < 0.9


# Gradients


def test_finite_differences(batch):
    cosines, labels = batch
    scale = double(init=4.0, rows=50)
    scale(cosines)  # the information is known from here on
    scale.eval()  # so that nothing counts
    leaf = cosines.clone().requires_grad_()
    loss_of(scale, leaf, labels).backward()
    found, h = scale.shift.grad.item(), 1e-6

    def value():
        return loss_of(scale, cosines, labels).item()

    values = []
    for sign in (1, -1):
        with torch.no_grad():
            scale.shift.fill_(sign * h / STRIDE)  # log alpha moves by h
        values.append(value())
    assert found * STRIDE == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-6)
    with torch.no_grad():
        scale.shift.zero_()
    torch.autograd.gradcheck(lambda c: loss_of(scale, c, labels), (leaf,))


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_how_far_a_step_moves(batch, optimizer):
    scale = double(init=4.0)
    steps = optimizer(scale.parameters(), lr=1e-3)
    alpha = scale.alpha
    mean = alpha.log()
    loss = loss_of(scale, *batch)
    loss.backward()
    gradient = STRIDE * scale.shift.grad.item()  # of log alpha
    steps.step()
    moved = (scale.alpha.log() - mean).item()
    expected = (
        -STRIDE * 1e-3 * math.copysign(1, gradient) if optimizer is torch.optim.Adam else None
    )
    assert moved == pytest.approx(-1e-3 * gradient if expected is None else expected, rel=1e-4)


def test_it_finds_the_best_scale(generator):
    """Labels drawn at scale 7 teach a scale near 7."""
    cosines = torch.rand(4000, WAY, generator=generator, dtype=torch.float64) * 2 - 1
    labels = (7 * cosines).softmax(-1).multinomial(1, generator=generator).squeeze(1)
    scale = double()
    optimizer = torch.optim.Adam(scale.parameters(), lr=8e-3)
    for _ in range(80):
        optimizer.zero_grad()
        loss_of(scale, cosines, labels).backward()
        optimizer.step()
    scale = scale.eval()
    q = LogitScale.posterior(scale)
    assert abs(math.log(7) - q.loc.item()) < 4 * oracle_spread(scale, cosines)


def oracle_spread(scale, cosines):
    return 1 / math.sqrt(len(cosines) * oracle_information(scale.alpha.item() * cosines))


def test_no_random_number_is_drawn(batch):
    before = torch.get_rng_state()
    scale = double()
    loss_of(scale, *batch).backward()
    scale.eval()(batch[0])
    repr(scale)
    assert torch.equal(before, torch.get_rng_state())


# State


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WAY, WAY, dtype=torch.float64)
        self.scale = double()

    def forward(self, x):
        return self.scale(torch.tanh(self.layer(x)))


def trained(batch, steps=3):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1]) + model.scale.kl()
        loss.backward()
        optimizer.step()
    assert model.scale.shift.item() != 0
    return model


def by_state_dict(model):
    fresh = Model()
    fresh.load_state_dict(model.state_dict())
    return fresh


def by_torch_save(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = Model()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def by_assignment(model):
    with torch.device("meta"):
        fresh = Model()
    repr(fresh)
    fresh.load_state_dict(model.state_dict(), assign=True)
    return fresh


COPIES = {
    "state dict": by_state_dict,
    "torch.save": by_torch_save,
    "meta": by_assignment,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_goes_on_as_the_original(batch, way):
    model = trained(batch)
    twin = COPIES[way](model)
    assert repr(twin) == repr(model)
    for m in (model, twin):
        m(batch[0] / 2)  # another spread: nobody begins again
    assert_same_state(state(twin), state(model))
    assert torch.equal(twin.eval()(batch[0]), model.eval()(batch[0]))


def test_a_state_from_before_the_first_batch_begins_anew(batch):
    """As a search for a learning rate does, which restores the state that it found."""
    scale = double()
    before = state(scale)
    scale(batch[0])
    scale.load_state_dict(before)
    assert repr(scale) == "LogitScale(not begun)"
    scale(batch[0] / 2)
    assert scale.alpha.item() == pytest.approx(2 * oracle_start(batch[0]))


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("average", [None, get_ema_multi_avg_fn(0.9)], ids=["swa", "ema"])
def test_averages_of_models(batch, average, use_buffers):
    torch.manual_seed(0)
    model = Model()
    averaged = AveragedModel(model, multi_avg_fn=average, use_buffers=use_buffers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    shifts = []
    for _ in range(3):
        optimizer.zero_grad()
        (F.cross_entropy(model(batch[0]), batch[1]) + model.scale.kl()).backward()
        optimizer.step()
        averaged.update_parameters(model)
        shifts.append(model.scale.shift.item())
    a, b, c = shifts
    mean = (a + b + c) / 3 if average is None else 0.9 * (0.9 * a + 0.1 * b) + 0.1 * c
    inner = averaged.module.scale
    log_alpha = inner.train().alpha.log().item()
    assert log_alpha == pytest.approx(model.scale.origin.item() + STRIDE * mean)
    assert "alpha" in repr(inner)
    averaged.train()(batch[0] / 2)  # a copy that goes on begins no more
    assert inner.alpha.log().item() == pytest.approx(log_alpha)


def test_halves_of_a_batch_accumulate_to_the_whole(batch):
    cosines, labels = batch
    whole, halves = (double(init=4.0, rows=12) for _ in range(2))
    loss_of(whole, cosines, labels).backward()
    for part in (slice(0, 6), slice(6, 12)):
        (loss_of(halves, cosines[part], labels[part]) / 2).backward()
    torch.testing.assert_close(halves.shift.grad, whole.shift.grad)
    assert halves.seen.item() == whole.seen.item() == 12
    counted, parts = double(init=4.0), double(init=4.0)  # without `rows` the KL counts as it goes
    loss_of(counted, cosines, labels).backward()
    for part in (slice(0, 6), slice(6, 12)):
        (loss_of(parts, cosines[part], labels[part]) / 2).backward()
    assert counted.seen.item() == parts.seen.item()
    pull = (math.log(4) - math.log(10)) / 9 / STRIDE  # of the KL: /6, /12 instead of /12
    assert (parts.shift.grad - counted.shift.grad).item() == pytest.approx(pull / 24)


# Precision


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_autocast(batch, alpha, dtype):
    scale, leaf = LogitScale(init=alpha), batch[0].to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        logits = scale(leaf)
        loss = F.cross_entropy(logits, batch[1]) + scale.kl()
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, alpha * leaf.float(), rtol=1e-5, atol=0)
    loss.backward()
    assert loss.isfinite()
    assert leaf.grad.isfinite().all()
    assert scale.shift.grad.isfinite().all()
    assert all(value.isfinite().all() for value in state(scale).values())


def test_grad_scaler_skips_what_overflows(batch):
    scale = double(init=4.0)
    optimizer = torch.optim.SGD(scale.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain = copy.deepcopy(scale)
    plain_optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    scaler.scale(loss_of(scale, *batch)).backward()
    scaler.step(optimizer)
    scaler.update()
    loss_of(plain, *batch).backward()
    plain_optimizer.step()
    torch.testing.assert_close(scale.shift, plain.shift)
    before = scale.shift.item()
    optimizer.zero_grad()
    scaler.scale(loss_of(scale, *batch) * torch.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scale.shift.item() == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_counts_on(batch, dtype):
    scale = LogitScale().to(dtype)
    for _ in range(3):
        scale(torch.zeros(70_000, 2, dtype=dtype))
    assert scale.seen.item() == 210_000
    loss_of(scale, batch[0].to(dtype), batch[1]).backward()
    assert scale.kl().isfinite()
    assert scale.eval().alpha.isfinite()


# Graphs


def whole_step(network, scale, support, labels, query, targets):
    prototypes = functional.prototypes(network(support), labels, n_way=WAY)
    cosines = functional.cosine_logits(network(query), prototypes)
    return F.cross_entropy(scale(cosines), targets) + scale.kl()


BACKENDS = [
    "aot_eager",
    pytest.param(
        "inductor",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a compiler"),
        ],
    ),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("as_user")  # checks of shapes are no part of a graph
def test_compiled_steps_give_the_same_numbers(generator, backend):
    torch._dynamo.reset()
    draw = {"generator": generator, "dtype": torch.float64}
    support, query = torch.randn(10, 8, **draw), torch.randn(15, 8, **draw)
    task = (support, torch.arange(10) % WAY, query, torch.arange(15) % WAY)
    torch.manual_seed(0)
    plain = (nn.Linear(8, 4, dtype=torch.float64), double())
    compiled = copy.deepcopy(plain)
    step = torch.compile(whole_step, fullgraph=True, backend=backend)
    for _ in range(3):  # the first batch begins, the others do not
        losses = []
        for function, (network, scale) in ((whole_step, plain), (step, compiled)):
            loss = function(network, scale, *task)
            loss.backward()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses)
        for a, b in zip(nn.ModuleList(plain).parameters(), nn.ModuleList(compiled).parameters(),
                        strict=True):  # fmt: skip
            torch.testing.assert_close(a.grad, b.grad)
        assert_same_state(state(plain[1]), state(compiled[1]))
    assert plain[1].seen.item() == 45


@pytest.mark.usefixtures("as_user")
def test_export(batch):
    scale = double()
    scale(batch[0])
    scale.eval()
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(scale, (batch[0],), dynamic_shapes=({0: rows},))
    fewer = batch[0][:7]
    torch.testing.assert_close(program.module()(fewer), scale(fewer))


# Several processes

KINDS = ["ddp", "ddp-outside", "fsdp", "fsdp-apart", "fsdp-outside", "fsdp-sharded"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What one process and two found, for every kind; all in one go, as starting is slow."""
    folder = tmp_path_factory.mktemp("processes")
    pytest.importorskip("torch.distributed.fsdp", reason="torch without FSDP")
    script = Path(__file__).with_name("two_processes.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder), *KINDS], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return lambda kind: [json.loads((folder / f"{kind}.{n}").read_text()) for n in ("one", 0, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_equal_one_with_all_rows(both, kind):
    one, *two = both(kind)
    for found in two:
        for a, b in zip(one["steps"], found["steps"], strict=True):
            assert b["seen"] == a["seen"]
            assert b["origin"] == pytest.approx(a["origin"], rel=1e-12)
            assert b["alpha"] == pytest.approx(a["alpha"], rel=1e-12)
        assert found["weight"] == pytest.approx(one["weight"], rel=1e-10, abs=1e-12)
        assert found["sharded"] == (kind in ("fsdp-apart", "fsdp-sharded"))
    alphas = [step["alpha"] for step in one["steps"]]
    assert max(alphas) / min(alphas) > 1.2  # it moved


# Edges


def test_before_any_training(batch):
    scale = double().eval()
    torch.testing.assert_close(scale(batch[0]), 10 * batch[0])
    assert scale.seen.item() == 0
    assert repr(scale) == "LogitScale(not begun)"
    scale = double(init=5.0).eval()
    torch.testing.assert_close(scale(batch[0]), 5 * batch[0])
    assert scale.kl().isfinite()
    assert repr(scale) == "LogitScale(alpha=5)"
    scale.train()(batch[0])
    assert scale.eval().alpha.item() == pytest.approx(5.0)


@pytest.mark.parametrize(
    "cosines",
    [torch.rand(4, 1), torch.full((4, 5), 0.3), torch.zeros(4, 5)],
    ids=["one class", "identical", "zeros"],
)
def test_cosines_that_tell_nothing(cosines):
    scale = LogitScale()
    loss = loss_of(scale, cosines, torch.zeros(4, dtype=torch.long))
    loss.backward()
    assert loss.isfinite()
    assert scale.shift.grad.isfinite().all()
    assert scale.alpha.item() == pytest.approx(10)
    assert scale.eval().alpha.item() == pytest.approx(10)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0,)])
def test_no_rows_change_nothing(batch, shape):
    scale = double()
    assert scale(torch.zeros(shape, dtype=torch.float64)).shape == shape
    assert scale.kl().isfinite()
    assert repr(scale) == "LogitScale(not begun)"
    scale(batch[0])
    assert scale.alpha.item() == pytest.approx(oracle_start(batch[0]))
    before = scale.information.item()
    scale(torch.zeros(shape, dtype=torch.float64))
    assert scale.information.item() == before


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_entries_that_are_not_finite_tell_nothing(batch, bad):
    """They show in the loss, which is theirs to spoil; the state is that of masked ones."""
    cosines, labels = batch
    spoilt = cosines.clone()
    spoilt[3, 1] = bad
    scale, other = double(), double()
    assert not loss_of(scale, spoilt, labels).isfinite()
    spoilt[3, 1] = -1e9
    other(spoilt)
    assert other.alpha.item() == pytest.approx(oracle_start(cosines), rel=0.05)
    assert scale.alpha.item() == pytest.approx(other.alpha.item())
    assert scale.information.item() == pytest.approx(other.information.item())
    before = scale.information.item()
    scale(torch.full_like(cosines, bad))
    assert scale.information.item() == before
    assert scale.eval()(cosines).isfinite().all()


@pytest.mark.parametrize("options", [{}, {"init": 10}])
def test_what_was_scaled_already_is_refused(batch, options):
    with pytest.raises(ValueError, match="Expected cosines, from -1 to 1, got .*Normalise"):
        double(**options)(14.3 * batch[0])
    scale = double(**options)
    with pytest.raises(ValueError, match="Expected cosines"):
        scale(14.3 * batch[0])
    assert not scale.seen  # the refused batch told nothing
    masked = batch[0].masked_fill(batch[0] < -0.5, -1e9)
    masked[0, 0] = 1.01  # as in 16 bits
    scale(masked)
    want = double(**options)
    want(masked)
    assert scale.alpha == want.alpha
    scale(14.3 * batch[0])  # later batches are not looked at: it would wait for the device


@pytest.mark.parametrize("options", [{}, {"init": 10}])
def test_tensors_without_values_are_not_looked_at(batch, options):
    logits = LogitScale(**options).to("meta")(torch.ones(4, 3, device="meta"))
    assert logits.shape == (4, 3)
    for mode in (FakeTensorMode(), FakeTensorMode(shape_env=ShapeEnv())):
        with mode:
            assert LogitScale(**options)(mode.from_tensor(batch[0])).shape == batch[0].shape
    make_fx(double(**options))(batch[0])
    models = [double(**options) for _ in range(2)]
    parameters, buffers = stack_module_state(models)
    call = partial(functional_call, models[0])
    out = vmap(lambda p, b, x: call((p, b), (x,)), (0, 0, None))(parameters, buffers, batch[0])
    assert torch.allclose(out[0], out[1])


def test_a_first_batch_of_nan_begins_at_the_prior(batch):
    scale = double()
    scale(torch.full_like(batch[0], math.nan))
    assert scale.alpha.item() == pytest.approx(10)
    scale(batch[0])
    assert scale.information.item() == pytest.approx(oracle_information(10 * batch[0]))


def test_one_row_without_an_axis(batch):
    scale = double()
    logits = scale(batch[0][0])
    torch.testing.assert_close(logits, oracle_start(batch[0][:1]) * batch[0][0])
    assert scale.seen.item() == 1


def test_further_axes_are_rows(batch):
    flat, deep = double(), double()
    a, b = flat(batch[0]), deep(batch[0].view(3, 4, WAY))
    torch.testing.assert_close(a, b.view(12, WAY))
    assert_same_state(state(flat), state(deep))


def test_initial_value_of_a_thousand_dimensions_is_large(generator):
    query, classes = (F.normalize(torch.randn(9, 1024, generator=generator)) for _ in range(2))
    assert 30 < initial_value(query @ classes.T).item() < 80


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("cosines", [torch.ones(3, 2, dtype=torch.long), torch.tensor(0.5)])
def test_what_is_not_a_batch_of_cosines(cosines):
    with pytest.raises(ValueError, match=r"Expected cosines \(\.\.\., way\), got torch"):
        LogitScale()(cosines)


@pytest.mark.parametrize("options", [{"init": 0.0}, {"init": math.inf}, {"rows": -1}])
def test_options_out_of_range(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"Expected {name} > 0, got"):
        LogitScale(**options)


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_scale_that_no_optimiser_moves_is_told(batch, forgotten, monkeypatch):
    monkeypatch.setattr(logit_scale, "PATIENCE", 5)
    scale = double()
    optimizer = torch.optim.SGD(scale.parameters(), lr=0.1)
    for _ in range(4):
        loss_of(scale, *batch).backward()
        if not forgotten:
            optimizer.step()
    with pytest.warns(match="make the optimiser after") if forgotten else nullcontext():
        loss_of(scale, *batch).backward()


def test_a_scale_that_is_frozen_is_meant_to_stay(batch, monkeypatch):
    monkeypatch.setattr(logit_scale, "PATIENCE", 2)
    scale = double().requires_grad_(False)
    for _ in range(3):
        scale(batch[0])
