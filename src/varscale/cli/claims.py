"""`varscale claims`: judge each claim of the paper by results."""

import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

from jsonargparse import Namespace

from varscale.cli.output import reply
from varscale.cli.parser import command, option, terminal_width
from varscale.core.registry import unknown
from varscale.paper.claims import CLAIMS, Verdict, judge_all
from varscale.paper.evidence import Everything
from varscale.paper.sizes import SIZES

SETTING = f"the small size ({SIZES['small'].summary}) and on frozen embeddings"


@command(
    "Judge each claim of the paper by results: holds, fails or undecided. Prints a table, or the "
    "figures behind the claims that you name.",
    "varscale claims C5 C7",
    option("ids ID", "claims to show in detail, such as C5", nargs="*"),
    option("--results FOLDER", "folder of result rows", default="results"),
    option("--details", "show all claims in detail", action="store_true"),
)
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
    width = max(len(v.statement) for v in verdicts)
    lines = [f"{v.id:4}{v.statement:{width}}  {v.answer}" for v in verdicts]
    if detailed := chosen or args.details:
        lines = [line for verdict in verdicts for line in _details(verdict)]
    if not args.json:
        sys.stderr.write(f"Judged by {folder}, at {SETTING}; not at the paper's full size.\n")
    reply(args, {v.id: asdict(v) for v in verdicts}, "\n".join(lines))
    if not (args.json or detailed):
        sys.stderr.write("Numbers behind a claim: varscale claims C5; behind all: --details\n")


def _details(verdict: Verdict) -> list[str]:
    """The claim, the answer, then every figure and the caveat on lines of their own."""
    wrapper = textwrap.TextWrapper(max(terminal_width(), 40), " " * 6, " " * 8)
    wrapper.break_on_hyphens = False
    lines = [f"{verdict.id:4}{verdict.statement}: {verdict.answer}"]
    for text in filter(None, [*verdict.figures, verdict.caveat]):
        lines += wrapper.wrap(text)
    return lines
