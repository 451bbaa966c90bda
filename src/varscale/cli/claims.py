"""`varscale claims`: what became of each claim of the paper."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.paper.claims import Everything, Verdict, judged


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Judge each claim of the paper by results: holds, fails or undecided.",
        "varscale claims --why",
    )
    parser.add_argument("--results", type=str, default="results", help="folder of result rows")
    parser.add_argument("--why", action="store_true", help="all figures of each, and its caveat")
    return parser


def run(args: Namespace) -> None:
    """Print the verdicts, a line each."""
    folder = Path(args.results)
    if not any(folder.glob("*.csv")):
        raise ValueError(
            f"Expected a folder of results, got {folder}. Give it by --results; "
            "varscale reproduce makes one."
        )
    verdicts = judged(Everything.read(folder))
    if args.json:
        sys.stdout.write(json.dumps({v.id: asdict(v) for v in verdicts}) + "\n")
        return
    for verdict in verdicts:
        sys.stdout.write("\n".join(_lines(verdict, why=args.why)) + "\n")


def _lines(verdict: Verdict, *, why: bool) -> list[str]:
    line = f"{verdict.id:4}{verdict.answer:11}{verdict.statement}"
    indent = " " * 15
    runs = [f"{verdict.runs} run{'s' * (verdict.runs > 1)} each"] if verdict.runs else []
    figures = verdict.figures or ["no runs yet"]
    if not why:
        return [f"{line}: {'; '.join([*figures[:1], *runs])}"]
    details = [*figures, *runs, *([verdict.caveat] if verdict.caveat else [])]
    return [line, *(indent + text for text in details)]
