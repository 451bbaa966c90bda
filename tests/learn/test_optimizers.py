"""A scaler beside an optimiser, and optimisers of a model."""

import copy
import pickle

import pytest
import torch
from torch import nn

from varscale.learn import follow
from varscale.learn.optimizers import scaler_optimizer
from varscale.scalers import DAVS, SVS, Fixed, Together


def test_follow_steps_the_scaler_when_the_optimiser_steps():
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    scaler = SVS(family="normal", lr=0.01, kl_weight=0.0)
    follow(scaler, optimizer, queries_per_task=10)
    (weight + scaler(torch.zeros(1)).mean).sum().backward()
    optimizer.step()
    assert scaler.loc.item() == pytest.approx(100 - 0.01 * 10 * 1.0)
    assert weight.item() == pytest.approx(-0.1)
    optimizer.zero_grad()
    assert scaler.loc.grad is None


def follower(lr=0.1, **options):
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=lr, **options)
    scaler = SVS(family="normal", lr=0.01, kl_weight=0.0, init=10.0)
    follow(scaler, optimizer, queries_per_task=1)
    return weight, optimizer, scaler


@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"fused": True}])
def test_follow_keeps_to_gradient_scaling_and_skipped_steps(how):
    _, optimizer, scaler = follower(**how)
    amp = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for loss in (scaler(torch.zeros(1)).mean.sum(), scaler(torch.zeros(1)).mean.sum() * torch.inf):
        optimizer.zero_grad()
        amp.scale(loss).backward()
        amp.step(optimizer)
        amp.update()
    assert scaler.loc.item() == pytest.approx(10 - 0.01)  # unscaled, and the infinite step skipped


def test_follow_keeps_to_zero_grad_and_ignores_schedulers():
    _, optimizer, scaler = follower()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.0)
    for _ in range(3):
        optimizer.zero_grad()
        scaler(torch.zeros(1)).mean.sum().backward()
    assert optimizer.param_groups[0]["lr"] == 0.0
    optimizer.step()
    scheduler.step()
    assert scaler.loc.item() == pytest.approx(10 - 0.01)
    assert optimizer.param_groups[1]["lr"] == 0.01  # shown as it steps


def test_follow_takes_the_gradients_of_a_closure():
    weight, optimizer, scaler = follower(momentum=0.9)

    def closure():
        optimizer.zero_grad()
        loss = (weight + scaler(torch.zeros(1)).mean).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == pytest.approx(11)
    optimizer.step(closure=closure)
    assert scaler.loc.item() == pytest.approx(10 - 2 * 0.01)
    assert scaler.loc not in optimizer.state
    assert weight.item() == pytest.approx(1 - 0.1 - 0.19)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_of_a_followed_optimiser_has_all_its_rates(duplicate):
    _, optimizer, _ = follower()
    assert [group["lr"] for group in duplicate(optimizer).param_groups] == [0.1, 0.01]


def test_a_loaded_state_leaves_the_scalers_rate_constant():
    _, optimizer, scaler = follower()
    optimizer.load_state_dict(optimizer.state_dict())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.0)
    scaler(torch.zeros(1)).mean.sum().backward()
    optimizer.step()
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.01]
    assert scaler.loc.item() == pytest.approx(10 - 0.01)


def test_follow_twice_is_refused():
    _, optimizer, scaler = follower()
    with pytest.raises(ValueError, match="more than one parameter group"):
        follow(scaler, optimizer, queries_per_task=1)


def test_an_own_scaler_without_a_rate_joins_the_main_optimiser():
    scaler = SVS(family="normal")
    scaler.lr = None
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=0.1)
    follow(scaler, optimizer, queries_per_task=75)
    scaler(torch.zeros(1)).mean.sum().backward()
    optimizer.step()
    assert scaler.loc.item() == pytest.approx(99.9)


def test_the_number_of_queries_is_checked():
    with pytest.raises(ValueError, match="queries_per_task >= 1, got 0"):
        scaler_optimizer(SVS(), queries_per_task=0)


def test_follow_joins_the_optimiser_where_that_is_the_rule():
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.1, weight_decay=0.1)
    follow(Fixed(), optimizer, queries_per_task=10)
    assert len(optimizer.param_groups) == 1
    follow(Together(), optimizer, queries_per_task=10)
    follow(DAVS(dim=4, family="normal", lr=0.5), optimizer, queries_per_task=10)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1, 0.5]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0, 0.0]


def test_a_scaler_of_the_main_optimiser_has_none_of_its_own():
    with pytest.raises(ValueError, match="no learning rate of its own"):
        scaler_optimizer(Together(), queries_per_task=10)
