"""`varscale claims`: judge each claim of the paper by results."""

import json
import shutil
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.core.registry import unknown
from varscale.paper.claims import CLAIMS, Everything, Verdict, judge_all
from varscale.paper.sizes import SIZES

SETTING = f"the small size ({SIZES['small'].summary}) and on frozen embeddings"


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Judge each claim of the paper by results: holds, fails or undecided. Prints a table, or "
        "the figures behind the claims that you name.",
        "varscale claims C5 C7",
    )
    parser.add_argument(
        "ids", type=str, nargs="*", metavar="ID", help="claims to show in detail, such as C5"
    )
    parser.add_argument(
        "--results", type=str, default="results", metavar="FOLDER", help="folder of result rows"
    )
    parser.add_argument("--details", action="store_true", help="show all claims in detail")
    return parser


def run(args: Namespace) -> None:
    """Print a table of the claims, or details of some."""
    folder, chosen = Path(args.results), [id.upper() for id in args.ids or ()]
    for id in chosen:
        if id not in CLAIMS:
            raise unknown("claim", id, CLAIMS)
    if not any(folder.glob("*.csv")):
        raise ValueError(
            f"Expected a folder of results, got {folder}. Choose it by --results FOLDER; varscale "
            "reproduce writes one."
        )
    verdicts = [v for v in judge_all(Everything.read(folder)) if not chosen or v.id in chosen]
    if args.json:
        sys.stdout.write(json.dumps({v.id: asdict(v) for v in verdicts}) + "\n")
        return
    sys.stderr.write(f"Judged by {folder}, at {SETTING}; not at the paper's full size.\n")
    width = max(len(v.statement) for v in verdicts)
    for verdict in verdicts:
        if chosen or args.details:
            sys.stdout.write("\n".join(_details(verdict)) + "\n")
        else:
            sys.stdout.write(f"{verdict.id:4}{verdict.statement:{width}}  {verdict.answer}\n")
    if not (chosen or args.details):
        sys.stderr.write("Numbers behind a claim: varscale claims C5; behind all: --details\n")


def _details(verdict: Verdict) -> list[str]:
    """The claim, the answer, then every figure and the caveat on lines of their own."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    lines = [f"{verdict.id:4}{verdict.statement}: {verdict.answer}"]
    for text in filter(None, [*verdict.figures, verdict.caveat]):
        lines += textwrap.wrap(
            text,
            max(width, 40),
            initial_indent=" " * 6,
            subsequent_indent=" " * 8,
            break_on_hyphens=False,
        )
    return lines
