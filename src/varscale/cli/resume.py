"""`varscale resume`: continue a run after any interruption."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

from jsonargparse import Namespace

from varscale.cli.parser import command, option
from varscale.cli.train import show
from varscale.runs import Run, TrainConfig
from varscale.runs.config import HARDWARE

KINDS = get_type_hints(TrainConfig)
SAME = "by default as before"


@command(
    "Continue an interrupted run. On a CPU the result is bit for bit that of an uninterrupted run; "
    "other hardware changes it by rounding.",
    "varscale resume runs/svs",
    option("run", "run directory"),
    option(
        "--accelerator", f"kind of device: auto, cpu, cuda or mps; {SAME}", KINDS["accelerator"]
    ),
    option("--devices", f"processes on this machine; {SAME}", int),
    option("--num_nodes", f"machines; {SAME}", int),
    option("--strategy", f"how processes share a step; {SAME}", KINDS["strategy"]),
)
def run(args: Namespace) -> None:
    """Train the remaining steps."""
    opened = Run.open(Path(args.run))
    opened.dataset()
    if opened.result is not None:
        sys.stderr.write(f"{opened.path} is finished; nothing is left to train.\n")
    other = {name: args[name] for name in HARDWARE if args[name] is not None}
    show(args, opened.path, replace(opened.config, **other))
