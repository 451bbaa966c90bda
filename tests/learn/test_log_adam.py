"""The optimiser of log alpha: Adam for one number, a common part and deviations for a vector."""

import copy
import math

import pytest
import torch
from torch import nn

from varscale.learn import follow
from varscale.learn.log_adam import DEVIATION, LogAdam
from varscale.learn.optimizers import own_parameters, scaler_optimizer
from varscale.runs.checkpoint import optimizer_tensors, restore_optimizers
from varscale.scalers import DAVS, DSVS, SVS


def gradients(steps, size, dtype=torch.float64):
    """Gradients whose size changes by orders of magnitude."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(steps, size, generator=generator, dtype=torch.float64)
    return (noise * torch.logspace(-3, 3, steps, dtype=torch.float64)[:, None]).to(dtype)


def follow_gradients(optimizer, parameter, found):
    path = []
    for gradient in found:
        parameter.grad = gradient.clone()
        optimizer.step()
        path.append(parameter.detach().clone())
    return torch.stack(path)


def in_loops(start, found, lr, beta1=0.9, beta2=0.99):
    """The same steps, number by number (M33)."""
    x, size = list(start), len(start)
    average, common_square, other_square = [0.0] * size, 0.0, 0.0
    for t, gradient in enumerate(found, start=1):
        common = sum(gradient) / size
        average = [beta1 * a + (1 - beta1) * g for a, g in zip(average, gradient, strict=True)]
        common_square = beta2 * common_square + (1 - beta2) * common**2
        others = sum((g - common) ** 2 for g in gradient) / size
        other_square = beta2 * other_square + (1 - beta2) * others
        mean = sum(average) / size
        first, second = 1 - beta1**t, 1 - beta2**t
        for m in range(size):
            step = (mean / first) / math.sqrt(common_square / second)
            step += 0.1 * ((average[m] - mean) / first) / math.sqrt(other_square / second)
            x[m] -= lr * step
    return x


def test_one_number_takes_the_steps_of_adam():
    ours, theirs = (nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    found = gradients(60, 1)
    path = follow_gradients(LogAdam([ours]), ours, found)
    adam = torch.optim.Adam([theirs], lr=0.02, betas=(0.9, 0.99), eps=0.0)
    expected = follow_gradients(adam, theirs, found)
    torch.testing.assert_close(path, expected, rtol=0, atol=1e-13)
    assert (path.diff(dim=0).abs() > 1e-4).any()


def test_a_vector_takes_the_steps_written_out_in_loops():
    parameter = nn.Parameter(torch.linspace(-1, 1, 5, dtype=torch.float64))
    found = gradients(40, 5)
    expected = in_loops(parameter.tolist(), found.tolist(), lr=0.05)
    path = follow_gradients(LogAdam([parameter], lr=0.05), parameter, found)
    assert path[-1].tolist() == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_the_common_part_moves_at_the_rate_and_deviations_at_a_tenth(size):
    """A constant gradient is its own average and the root of its own mean square."""
    gradient = size * torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    parameter = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    path = follow_gradients(LogAdam([parameter], lr=0.02), parameter, [gradient] * 7)
    common = path.mean(-1)
    expected = -0.02 * torch.arange(1, 8, dtype=torch.float64)
    torch.testing.assert_close(common, expected, rtol=1e-10, atol=0)
    deviations = (path - common[:, None]).square().mean(-1).sqrt()
    torch.testing.assert_close(deviations, -DEVIATION * expected, rtol=1e-10, atol=0)
    assert DEVIATION == 0.1


def test_dimensions_without_a_gradient_do_not_drift_as_far_as_those_with_one():
    parameter = nn.Parameter(torch.zeros(10, dtype=torch.float64))
    gradient = torch.zeros(10, dtype=torch.float64)
    gradient[0], gradient[1] = 1.0, -1.0  # nothing in common
    path = follow_gradients(LogAdam([parameter]), parameter, [gradient] * 5)
    torch.testing.assert_close(path[:, 2:], torch.zeros(5, 8).double(), rtol=0, atol=1e-15)
    assert path[-1, 0] < -0.005
    assert path[-1, 1] > 0.005


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 4])
def test_no_gradient_is_no_step(size, dtype):
    parameter = nn.Parameter(torch.ones(size, dtype=dtype))
    optimizer = LogAdam([parameter, nn.Parameter(torch.zeros(1))])  # the other has none at all
    path = follow_gradients(optimizer, parameter, torch.zeros(5, size, dtype=dtype))
    assert torch.equal(path, torch.ones(5, size, dtype=dtype))


@pytest.mark.parametrize("exponent", [-15, -19, -20, -22, -25, -30, -38])
def test_a_gradient_whose_square_underflows_takes_no_leap(exponent):
    """A step is never longer than about the rate: what is separated leaves such gradients."""
    parameter = nn.Parameter(torch.zeros(3))
    gradient = 10.0**exponent * torch.tensor([1.0, 2.0, 3.0])
    path = follow_gradients(LogAdam([parameter]), parameter, [gradient] * 4)
    assert path.isfinite().all()
    assert path[0].abs().max() < 0.03
    assert path.diff(dim=0).abs().max() < 0.03


def pair(size=3):
    parameter = nn.Parameter(torch.zeros(size))
    return parameter, LogAdam([parameter])


@pytest.mark.parametrize("way", ["checkpoint", "state_dict"])
def test_its_state_survives_a_round_trip(way):
    found = gradients(12, 3, torch.float32)
    parameter, optimizer = pair()
    whole = follow_gradients(optimizer, parameter, found)
    parameter, optimizer = pair()
    follow_gradients(optimizer, parameter, found[:5])
    twin, other = pair()
    with torch.no_grad():
        twin.copy_(parameter)
    if way == "checkpoint":
        saved = {name: t.clone() for name, t in optimizer_tensors([optimizer]).items()}
        assert {name.rpartition("/")[2] for name in saved} == {
            "step", "average", "common_square", "other_square",
        }  # fmt: skip
        restore_optimizers([other], saved)
    else:
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.state[twin]["step"].dtype == torch.float64
    assert torch.equal(follow_gradients(other, twin, found[5:]), whole[5:])


def test_a_restored_state_is_on_the_device_of_its_parameter():
    """The averages of a checkpoint come from the CPU; one that stays there stops a GPU's step."""
    parameter, optimizer = pair()
    follow_gradients(optimizer, parameter, gradients(2, 3, torch.float32))
    there = nn.Parameter(torch.zeros(3, device="meta"))
    other = LogAdam([there])
    restore_optimizers([other], optimizer_tensors([optimizer]))
    state = other.state[there]
    assert {name: t.device.type for name, t in state.items() if name != "step"} == {
        "average": "meta", "common_square": "meta", "other_square": "meta",
    }  # fmt: skip
    assert state["step"].item() == 2  # a number


def test_a_closure_gives_the_gradients():
    parameter, optimizer = pair(1)

    def closure():
        optimizer.zero_grad()
        loss = (parameter - 5).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 25
    assert parameter.item() == pytest.approx(0.02)


def test_a_step_changes_alpha_by_two_percent_whatever_its_size():
    for init in (1e-3, 1.0, 1e5):
        scaler = SVS(init=init).double()
        before = scaler.loc.item()
        optimizer = scaler_optimizer(scaler, queries_per_task=75)
        (-scaler(torch.zeros(1)).mean / init).sum().backward()
        optimizer.step()
        assert scaler.loc.item() - before == pytest.approx(0.02, rel=1e-6)


def test_following_an_optimiser_takes_the_same_steps():
    found = gradients(6, 4)
    alone, beside = DSVS(4).double(), DSVS(4).double()
    path = follow_gradients(scaler_optimizer(alone, 1), alone.loc, found)
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    follow(beside, optimizer, queries_per_task=1)
    assert optimizer.param_groups[1]["lr"] == 0.02
    assert torch.equal(follow_gradients(optimizer, beside.loc, found), path)


def test_a_generator_learns_its_network_by_the_main_optimiser():
    scaler = DAVS(4, hidden=3, lr=0.5)
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.1, weight_decay=0.1)
    follow(scaler, optimizer, queries_per_task=10)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5, 0.02]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0, 0.0]
    own = own_parameters(scaler)
    assert own == [scaler.shared.loc, scaler.shared.sigma]
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 4, 2]
