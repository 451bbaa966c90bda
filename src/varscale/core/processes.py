"""Exchange tensors and batch statistics between processes."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@dataclass(frozen=True)
class Processes:
    """The processes that share a piece of work; by default there is only this one.

    Attributes:
        rank: Number of this process.
        count: Number of processes.
        device: Where they exchange tensors: NCCL supports only GPUs.
    """

    rank: int = 0
    count: int = 1
    device: torch.device | None = None

    def gather(self, x: Tensor) -> Tensor:
        """Stack the tensors of all processes, which must have the same shape."""
        if self.count == 1:
            return x.unsqueeze(0)
        return _gather(x.to(self.device), self.count).to(x.device)

    def share(self, total: int) -> range:
        """This process's part of 0..total-1; all parts but the last ones are equally long."""
        each = -(-total // self.count)
        return range(min(self.rank * each, total), min((self.rank + 1) * each, total))

    def join(self, part: Tensor, total: int) -> Tensor:
        """Concatenate the parts of all processes along the first axis: the inverse of `share`."""
        if self.count == 1:
            return part
        each = -(-total // self.count)
        padded = F.pad(part, (0, 0) * (part.ndim - 1) + (0, each - len(part)))
        return self.gather(padded).flatten(0, 1)[:total]


ALONE = Processes()


def check_accelerator(name: str) -> None:
    """Raise ValueError if this machine has no such device."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(name, True):
        raise ValueError(f"There is no {name} device here. Use --accelerator cpu.")


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
        means, variances = _gather(local, dist.get_world_size()).unbind(1)
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
        all_weight, all_bias = _gather(torch.stack([grad_weight, grad_bias]), world).sum(0)
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


def _gather(x: Tensor, count: int) -> Tensor:
    out = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(count)]
    dist.all_gather(out, x.contiguous())
    return torch.stack(out)
