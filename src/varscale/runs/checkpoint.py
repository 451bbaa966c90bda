"""Checkpoints: safetensors for every tensor, JSON for the rest, and hashes of both.

A checkpoint is two files, `00001200.safetensors` and `00001200.json`. The JSON is written last and
holds the hash of the tensors and of itself, so a checkpoint is complete or absent.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from varscale.core.files import file_hash, write_whole

_FILE = re.compile(r"\.?[0-9]{8,}\.(json|safetensors)(\.new)?")  # .new: not yet in its place


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A saved state of training: steps done, tensors by name, and everything else."""

    step: int
    tensors: dict[str, Tensor]
    info: dict[str, Any]


def save_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, Tensor], info: Mapping[str, Any]
) -> None:
    """Save a checkpoint, keep the two newest and remove all others, also damaged ones."""
    folder.mkdir(parents=True, exist_ok=True)
    # safetensors wants plain rows: Conv-4 keeps its weights in channels_last
    content = save({name: t.detach().cpu().contiguous() for name, t in sorted(tensors.items())})
    body = {"step": step, "sha256": hashlib.sha256(content).hexdigest(), **info}
    write_whole(folder / f"{step:08}.safetensors", content)
    sealed = {"seal": _seal(body), **body}
    write_whole(folder / f"{step:08}.json", json.dumps(sealed, indent=1).encode())
    _keep(folder, [kept for kept in _steps(folder) if kept <= step][:2])


def forget_after(folder: Path, step: int) -> None:
    """Remove the checkpoints of later steps, after a run has gone back."""
    _keep(folder, [kept for kept in _steps(folder) if kept <= step])


def _keep(folder: Path, steps: Sequence[int]) -> None:
    """Remove all other checkpoints, and files that a kill left behind."""
    kept = {f"{step:08}.{suffix}" for step in steps for suffix in ("json", "safetensors")}
    for path in sorted(folder.glob("*")):  # JSON first: a checkpoint is whole or not there
        if _FILE.fullmatch(path.name) and path.name not in kept:
            path.unlink(missing_ok=True)


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Find the newest intact checkpoint; warn of damaged ones."""
    for step in _steps(folder):
        try:
            body = json.loads((folder / f"{step:08}.json").read_text())
            path = folder / f"{step:08}.safetensors"
            seal = body.pop("seal", None)
            if seal != _seal(body) or body["step"] != step or file_hash(path) != body["sha256"]:
                raise ValueError("it is not as it was written")
            tensors = load_file(path)
        except (OSError, ValueError, AttributeError, KeyError, SafetensorError) as error:
            warnings.warn(
                f"The checkpoint of step {step} in {folder} is damaged ({error}) and not used.",
                stacklevel=2,
            )
            continue
        info = {key: body[key] for key in body if key not in ("step", "sha256")}
        return Checkpoint(step, tensors, info)
    return None


def module_tensors(module: nn.Module, kind: str = "model") -> dict[str, Tensor]:
    """Weights and buffers, by name."""
    return {f"{kind}/{name}": tensor for name, tensor in module.state_dict().items()}


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], kind: str = "model") -> None:
    """Put saved weights and buffers in their places."""
    start = len(f"{kind}/")
    module.load_state_dict({n[start:]: t for n, t in tensors.items() if n.startswith(f"{kind}/")})


def optimizer_tensors(optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The state of optimisers, by optimiser, parameter and name."""
    return {
        f"optimizer/{number}/{place}/{name}": value
        for number, optimizer in enumerate(optimizers)
        for place, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


@torch.no_grad()
def restore_optimizers(optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Put a saved state in its place, in the memory order that the parameters have."""
    for name, value in tensors.items():
        kind, *rest = name.split("/")
        if kind != "optimizer":
            continue
        optimizer, key = optimizers[int(rest[0])], rest[2]
        parameter = _parameters(optimizer)[int(rest[1])]
        if value.shape == parameter.shape:
            place = torch.empty_like(parameter).copy_(value)
        else:  # a count of steps stays on the CPU
            place = value.clone() if key == "step" else value.to(parameter.device, copy=True)
        optimizer.state[parameter][key] = place


def weights_hash(model: nn.Module) -> str:
    """SHA-256 of all weights and buffers with their names: equal when every bit is."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _steps(folder: Path) -> list[int]:
    """Steps of the checkpoints that are there, newest first."""
    names = (path.stem for path in folder.glob("*.json"))
    return sorted((int(n) for n in names if re.fullmatch("[0-9]{8,}", n)), reverse=True)


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
