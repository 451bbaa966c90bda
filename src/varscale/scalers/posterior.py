"""The posterior of a scale, as a scaler's forward returns it."""

import torch
from torch import Tensor
from torch.distributions import LogNormal, Normal
from torch.distributions.transforms import ExpTransform

Posterior = Normal | LogNormal
"""q(alpha | task): normal as published, log-normal where alpha is to be positive."""


def gaussian(loc: Tensor, scale: Tensor) -> Normal:
    """Make a `Normal` of two tensors of one shape, without its constructor's checks.

    They take longer than the head's matrix product, and raise an error for a point.
    """
    q = object.__new__(Normal)
    q.loc, q.scale = loc, scale
    q._batch_shape, q._event_shape, q._validate_args = loc.shape, torch.Size(), False
    return q


def log_gaussian(loc: Tensor, sigma: Tensor) -> LogNormal:
    """Make a `LogNormal` in the same way."""
    q = object.__new__(LogNormal)
    q.base_dist, q.transforms = gaussian(loc, sigma), [ExpTransform()]
    q._batch_shape, q._event_shape, q._validate_args = loc.shape, torch.Size(), False
    return q
