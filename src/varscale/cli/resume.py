"""`varscale resume`: go on with a run after any interruption."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.cli.train import show
from varscale.runs.config import HARDWARE
from varscale.runs.run import Run


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Go on with a run; on a CPU the result is bit for bit that of an uninterrupted one.",
        "varscale resume runs/svs",
    )
    parser.add_argument("run", type=str, help="the run directory")
    note = "instead of what the run began with; equal then to rounding only"
    parser.add_argument(
        "--accelerator", type=Literal["auto", "cpu", "cuda", "mps"] | None, help=note
    )
    parser.add_argument("--devices", type=int | None, help=note)
    parser.add_argument("--num_nodes", type=int | None, help=note)
    parser.add_argument("--strategy", type=Literal["auto", "ddp"] | None, help=note)
    return parser


def run(args: Namespace) -> None:
    """Train what is left."""
    opened = Run.open(Path(args.run))
    opened.dataset()
    other = {name: args[name] for name in HARDWARE if args[name] is not None}
    show(opened.path, replace(opened.config, **other), as_json=args.json)
