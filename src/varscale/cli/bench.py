"""`varscale bench`: measure speed, as ratios to a floor on the same machine."""

import json
import sys

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table

from varscale.cli.parser import Parser, command


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Measure the speed of training and evaluation, as ratios to a floor on the same machine.",
        "varscale bench --parts [heads,rates]",
    )
    parser.add_argument(
        "--repeats", type=int, default=15, help="how often to repeat each measurement"
    )
    parser.add_argument(
        "--parts",
        type=list[str] | None,
        default=None,
        help="measure only these parts, such as [heads,rates]",
    )
    return parser


def run(args: Namespace) -> None:
    """Measure, and print each ratio beside its target."""
    from varscale import bench  # brings Fabric

    ratios = bench.run(args.repeats, args.parts)
    if args.json:
        sys.stdout.write(json.dumps({ratio.key: ratio.value for ratio in ratios}) + "\n")
        return
    table = Table("ratio", "measured", "target", "met", "what it is")
    for ratio in ratios:
        bound = f"{'at least' if ratio.at_least else 'at most'} {ratio.target:g}"
        met = "yes" if ratio.met else "no"
        table.add_row(
            ratio.key,
            f"{ratio.value:,.3g}" if ratio.value < 1000 else f"{ratio.value:,.0f}",
            bound,
            met,
            ratio.meaning,
        )
    Console(highlight=False).print(table)
