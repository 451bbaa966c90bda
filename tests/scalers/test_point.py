import pytest
import torch
from torch import nn

from varscale.scalers import DAVS, SVS, Fixed, Together


def test_fixed_takes_a_number_or_a_vector():
    assert Fixed(scale=3.0)(torch.zeros(2, 4)).mean.tolist() == [[3.0], [3.0]]
    assert Fixed(scale=[1.0, 2.0])(torch.zeros(2)).mean.tolist() == [1.0, 2.0]
    assert repr(Fixed(scale=3.0)) == "Fixed(scale=3)"
    assert repr(Fixed(scale=[1.0, 2.0])) == "Fixed(size=2)"


def test_points_have_no_spread_and_no_kl():
    for scaler in (Fixed(scale=3.0), Together(init_loc=3.0)):
        q = scaler(torch.zeros(2, 4))
        noise = torch.randn(2, 1, generator=torch.Generator().manual_seed(0))
        assert torch.equal(scaler.sample(q, noise), torch.full((2, 1), 3.0))
        assert torch.equal(scaler.penalty(q), torch.zeros(2))


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="finite scale"):
        Fixed(scale=float("nan"))
    with pytest.raises(ValueError, match="finite init_loc"):
        Together(init_loc=float("inf"))


def test_follow_steps_the_scaler_when_the_optimiser_steps():
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    scaler = SVS(lr=0.01, kl_weight=0.0)
    scaler.follow(optimizer, n_query=10)
    (weight + scaler(torch.zeros(1)).mean).sum().backward()
    optimizer.step()
    assert scaler.loc.item() == pytest.approx(100 - 0.01 * 10 * 1.0)
    assert scaler.loc.grad is None
    assert weight.item() == pytest.approx(-0.1)


def test_follow_joins_the_optimiser_where_that_is_the_rule():
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.1, weight_decay=0.1)
    Fixed().follow(optimizer, n_query=10)
    assert len(optimizer.param_groups) == 1
    Together().follow(optimizer, n_query=10)
    DAVS(dim=4, lr=0.5).follow(optimizer, n_query=10)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1, 0.5]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0, 0.0]


def test_a_scaler_of_the_main_optimiser_has_none_of_its_own():
    with pytest.raises(ValueError, match="no optimiser of its own"):
        Together().optimizer(n_query=10)
