"""`varscale resume`: continue a run after any interruption."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.cli.train import show
from varscale.runs import Run
from varscale.runs.config import HARDWARE


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Continue an interrupted run. On a CPU the result is bit for bit that of an uninterrupted "
        "run; other hardware changes it by rounding.",
        "varscale resume runs/svs",
    )
    parser.add_argument("run", type=str, help="run directory")
    same = "by default as before"
    kinds = Literal["auto", "cpu", "cuda", "mps"] | None
    help_text = f"kind of device: auto, cpu, cuda or mps; {same}"
    parser.add_argument("--accelerator", type=kinds, help=help_text)
    parser.add_argument("--devices", type=int | None, help=f"processes on this machine; {same}")
    parser.add_argument("--num_nodes", type=int | None, help=f"machines; {same}")
    strategies = Literal["auto", "ddp"] | None
    parser.add_argument("--strategy", type=strategies, help=f"how processes share a step; {same}")
    return parser


def run(args: Namespace) -> None:
    """Train the remaining steps."""
    opened = Run.open(Path(args.run))
    opened.dataset()
    other = {name: args[name] for name in HARDWARE if args[name] is not None}
    show(opened.path, replace(opened.config, **other), as_json=args.json)
