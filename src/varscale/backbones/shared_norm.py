"""Batch norm over the batches of several processes."""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from varscale.core.processes import gather


def share_batch_norm(module: nn.Module) -> None:
    """Make every batch norm compute its training statistics over the batches of all processes.

    Two processes with one task each then compute the same as one process with both tasks. torch's
    own `SyncBatchNorm` does not run on CPUs.
    """
    for child in module.modules():
        if isinstance(child, _BatchNorm):
            child.__class__ = SharedBatchNorm


class SharedBatchNorm(_BatchNorm):
    """Batch norm over the batches of all processes, which must be equally large."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"Expected a batch of at least 2 axes, got {tuple(input.shape)}.")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise; in training, by the statistics of all processes."""
        self._check_input_dim(input)
        if not self.training:
            return super().forward(input)
        output, mean, var = _SharedNorm.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps
        )
        if self.running_mean is not None and self.running_var is not None:
            n = input.numel() // input.shape[1] * dist.get_world_size()
            assert self.momentum is not None
            assert self.num_batches_tracked is not None
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * (n / max(n - 1, 1)), self.momentum)
            self.num_batches_tracked.add_(1)
        result: Tensor = output
        return result


class _SharedNorm(torch.autograd.Function):
    """Normalisation by the mean and variance of all processes, and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        nothing = x.new_zeros(x.shape[1])  # `SharedBatchNorm` keeps the running statistics
        local = torch.stack(torch.batch_norm_update_stats(x, nothing, nothing.clone(), 0.0))
        means, variances = gather(local, dist.get_world_size()).unbind(1)
        mean = means.mean(0)
        var = variances.mean(0) + means.var(0, correction=0)
        ctx.save_for_backward(x, weight, mean, var)
        ctx.eps = eps
        output = F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps)
        ctx.mark_non_differentiable(mean, var)
        return output, mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, var = ctx.saved_tensors
        inverse = (var + ctx.eps).rsqrt()
        _, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
            gradients[0], x, weight, None, None, mean, inverse, True, ctx.eps, [False, True, True]
        )
        world = dist.get_world_size()
        all_weight, all_bias = gather(torch.stack([grad_weight, grad_bias]), world).sum(0)
        # dx = w / std (dy - sum(dy) / n - (x - mean) / std * sum(dy (x - mean) / std) / n),
        # as one linear function of x and dy for each channel
        n = x.numel() // x.shape[1] * world
        per_dy = weight * inverse
        per_x = -per_dy * inverse * all_weight / n
        constant = -per_dy * all_bias / n - per_x * mean
        shape = (1, -1) + (1,) * (x.ndim - 2)
        grad_x = torch.addcmul(constant.view(shape), x, per_x.view(shape))
        grad_x.addcmul_(gradients[0], per_dy.view(shape))
        return grad_x, grad_weight, grad_bias, None
