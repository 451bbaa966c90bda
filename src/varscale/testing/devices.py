"""Devices that are not here: a tensor on `meta` has a shape and no values.

Whatever reads a value fails there and makes a GPU wait; a tensor made on the CPU meets those of the
device and fails on both.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META = torch.device("meta")


class OneDevice(TorchDispatchMode):
    """Let no operation take tensors of two devices, and no copy to a device wait.

    A CPU tensor without axes counts as a number: CUDA takes it as one.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at its tensors."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, Tensor)]
        if len({x.device for x in tensors if x.ndim or x.is_meta}) > 1:
            if func is not torch.ops.aten._to_copy.default:
                raise AssertionError(f"{func} takes tensors of two devices")
            if not kwargs.get("non_blocking"):
                raise AssertionError(f"a copy of {tuple(out.shape)} waits for the device")
        return out


class NothingRead(TorchDispatchMode):
    """Let no operation read a value, on the CPU either."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation that does not read a value."""
        if func is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("a value is read")
        return func(*args, **kwargs or {})


@contextmanager
def stay_on(device: torch.device, who: str) -> Iterator[None]:
    """Name the member and the remedy when something leaves its device."""
    try:
        with _unvalidated(), OneDevice():  # type: ignore[no-untyped-call]
            yield
    except Exception as error:
        said = " ".join(str(error).split())[:200].rstrip(".")
        raise AssertionError(
            f"Expected {who} to work on any device, got an error on one whose tensors have no "
            f"values ({device}): {said}. Create tensors where the input is (x.new_zeros(...), "
            "device=x.device), keep constants in buffers, and do not read values (.item(), if x > "
            "0)."
        ) from error


@contextmanager
def read_nothing(who: str) -> Iterator[None]:
    """Name the member and the remedy when a value is read."""
    try:
        with _unvalidated(), NothingRead():  # type: ignore[no-untyped-call]
            yield
    except AssertionError as error:
        raise AssertionError(
            f"Expected {who} to predict without reading a value, which makes a GPU wait, got one "
            "that reads. Replace .item(), float(x), if x > 0 and the like by tensor operations."
        ) from error


@contextmanager
def _unvalidated() -> Iterator[None]:
    """Let torch's distributions not look at their arguments, as `python -O` does."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)
