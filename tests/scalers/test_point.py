import pytest
import torch
from torch.distributions import Normal

from varscale.scalers import Fixed, Together
from varscale.scalers.posterior import gaussian


def test_fixed_takes_a_number_or_a_vector():
    assert Fixed(alpha=3.0)(torch.zeros(2, 4)).mean.tolist() == [[3.0], [3.0]]
    assert Fixed(alpha=[1.0, 2.0])(torch.zeros(2)).mean.tolist() == [1.0, 2.0]
    assert repr(Fixed(alpha=3.0)) == "Fixed(alpha=3)"
    assert repr(Fixed(alpha=[1.0, 2.0])) == "Fixed(size=2)"


def test_points_have_no_spread_and_no_kl():
    for scaler in (Fixed(alpha=3.0), Together(init=3.0)):
        q = scaler(torch.zeros(2, 4))
        noise = torch.randn(2, 1, generator=torch.Generator().manual_seed(0))
        assert torch.equal(scaler.sample(q, noise), torch.full((2, 1), 3.0))
        assert torch.equal(scaler.penalty(q), torch.zeros(2))


def test_wrong_values_are_refused():
    for alpha in (float("nan"), float("inf"), 0.0, -1.0, [1.0, 0.0]):
        with pytest.raises(ValueError, match="finite alpha > 0"):
            Fixed(alpha=alpha)
    with pytest.raises(ValueError, match="finite init"):
        Together(init=float("inf"))


def test_a_gaussian_is_torchs_normal():
    loc, scale = torch.randn(2, 3), torch.rand(2, 3) + 0.1
    ours, theirs = gaussian(loc, scale), Normal(loc, scale)
    for name in ("mean", "stddev", "batch_shape", "event_shape"):
        assert torch.equal(*map(torch.as_tensor, (getattr(ours, name), getattr(theirs, name))))
    assert torch.equal(ours.log_prob(loc + 1), theirs.log_prob(loc + 1))
    assert torch.equal(ours.icdf(loc.sigmoid()), theirs.icdf(loc.sigmoid()))
    assert torch.equal(ours.expand((4, 2, 3)).mean, theirs.expand((4, 2, 3)).mean)
    assert repr(ours) == repr(theirs)
