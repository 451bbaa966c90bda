"""`varscale doctor`: show versions, devices and known conflicts."""

import importlib.metadata
import os
import platform
import shutil
import time
from typing import Any

import torch
from jsonargparse import Namespace
from rich.markup import escape
from rich.table import Table

from varscale.cli.output import reply
from varscale.cli.parser import command
from varscale.core.allocator import keep_memory
from varscale.data.store import data_root, list_prepared
from varscale.version import __version__

PACKAGES = {
    **dict.fromkeys(("torch", "numpy", "scikit-learn", "safetensors", "jsonargparse"), ""),
    **dict.fromkeys(("lightning-fabric", "tensorboard", "matplotlib"), "train"),
    "pytorch-metric-learning": "metric-learning",
    "pooch": "download",
}
"""Packages that varscale uses, and the extra that installs each."""

WORTH = 0.8
"""Share of the float32 time below which bfloat16 is recommended."""


@command("Show versions, devices and known conflicts.", "varscale doctor")
def run(args: Namespace) -> None:
    """Print the findings."""
    found = examine()
    table = Table("what", "found")
    for name, value in found.items():
        if name not in ("conflicts", "packages"):
            table.add_row(name, str(value))
    for name, version in found["packages"].items():
        extra = f"not installed: pip install 'varscale[{PACKAGES[name]}]'"
        table.add_row(name, version or escape(extra))
    notes = [f"conflict: {conflict}" for conflict in found["conflicts"]]
    reply(args, found, [table, *(notes or ["no known conflicts"])])


def examine() -> dict[str, Any]:
    """Collect everything that the command shows."""
    root = data_root()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    place = next(p for p in (root, *root.parents) if p.exists())
    return {
        "varscale": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": ["cpu", *gpus, *mps],
        "allocator": (
            "glibc: freed memory is kept between steps"
            if keep_memory()
            else "not glibc: large tensors may be slow to allocate"
        ),
        "bfloat16": bfloat16(),
        "data": str(root),
        "datasets": list_prepared(root),
        "free disk space": f"{shutil.disk_usage(place).free / 2**30:.0f} GiB",
        "packages": {name: version(name) for name in PACKAGES},
        "conflicts": conflicts(),
    }


def bfloat16() -> str:
    """Whether `--precision bf16-mixed` is worth it here, by the fastest of a few convolutions."""
    layer = torch.nn.Conv2d(64, 64, 3, padding=1)
    images = torch.rand(32, 64, 42, 42).contiguous(memory_format=torch.channels_last)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with torch.inference_mode():
        for _ in range(6):
            for half, taken in seconds.items():
                began = time.perf_counter()
                with torch.autocast("cpu", torch.bfloat16, enabled=half):
                    layer(images)
                taken.append(time.perf_counter() - began)
    ratio = min(seconds[True]) / min(seconds[False])
    verdict = "worth it" if ratio < WORTH else "not worth it"
    return f"a convolution takes {ratio:.2f} of its float32 time: bf16-mixed is {verdict}"


def conflicts() -> list[str]:
    """Combinations of packages and settings that do not work, or are slow."""
    found = []
    torch_version = version("torch") or torch.__version__
    if version("torchvision") and torch_version.endswith("+cpu"):
        found.append(
            "torchvision beside a CPU build of torch breaks the import of many packages. varscale "
            "does not need it: pip uninstall torchvision."
        )
    if torch.version.cuda and not torch.cuda.is_available():
        found.append(
            "this torch is built for CUDA, but finds no GPU. Check the driver, or install the "
            "smaller CPU build."
        )
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) > (os.cpu_count() or 1):
        found.append("OMP_NUM_THREADS is larger than the number of cores: steps will be slow.")
    return found


def version(package: str) -> str | None:
    """Version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
