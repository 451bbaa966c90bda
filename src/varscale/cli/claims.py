"""`varscale claims`: what became of each claim of the paper."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.paper.claims import Everything, Verdict, judge_all
from varscale.paper.sizes import SIZES

SETTING = f"the small size ({SIZES['small'].summary}) and on frozen embeddings"


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Judge each claim of the paper by results: holds, fails or undecided.",
        "varscale claims --why",
    )
    parser.add_argument("--results", type=str, default="results", help="folder of result rows")
    parser.add_argument(
        "--why", action="store_true", help="a line for each figure, and how it is judged"
    )
    return parser


def run(args: Namespace) -> None:
    """Print the verdicts, a line each."""
    folder = Path(args.results)
    if not any(folder.glob("*.csv")):
        raise ValueError(
            f"Expected a folder of results, got {folder}. Give it by --results; "
            "varscale reproduce makes one."
        )
    verdicts = judge_all(Everything.read(folder))
    if args.json:
        sys.stdout.write(json.dumps({v.id: asdict(v) for v in verdicts}) + "\n")
        return
    sys.stderr.write(f"Judged by {folder}, at {SETTING}; not the paper's own setting.\n")
    for verdict in verdicts:
        sys.stdout.write(_text(verdict, why=args.why) + "\n")


def _text(verdict: Verdict, *, why: bool) -> str:
    line = f"{verdict.id:4}{verdict.answer:11}{verdict.statement}"
    if not why:
        return f"{line}: {'; '.join(verdict.figures)}"
    details = [*verdict.figures, *([verdict.caveat] if verdict.caveat else [])]
    return "\n".join([line, *(" " * 15 + text for text in details)])
