"""`varscale reproduce`: a table or figure of the paper, reported beside ours."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table

from varscale.cli.parser import Parser, command
from varscale.cli.progress import Bar
from varscale.core.precision import Precision
from varscale.paper.cluster import reproduce_on
from varscale.paper.cost import flop, minutes
from varscale.paper.grid import TITLES, cells, config_text, entries, format_figure
from varscale.paper.importer import take
from varscale.paper.reproduce import Job, missing, reproduce
from varscale.paper.results import Results, Row
from varscale.paper.sizes import SIZES
from varscale.paper.tables import Line, table


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Run the cells of a table or figure that are missing, and print reported beside ours.",
        "varscale reproduce table2 --size small --plan",
    )
    parser.add_argument("id", type=str | None, nargs="?", help=", ".join(TITLES))
    parser.add_argument(
        "--print-config",
        type=str | None,
        help="print the config of a cell as YAML, as the paper has it",
    )
    parser.add_argument(
        "--size",
        type=Literal["small", "paper", "frozen"],
        default="small",
        help="; ".join(f"{name}: {size.summary}" for name, size in SIZES.items()),
    )
    parser.add_argument("--row", type=str | None, help='one row, such as "PN + SVS"')
    parser.add_argument("--column", type=str | None, help='one column, such as "1-shot cosine"')
    parser.add_argument("--dataset", type=str | None, help="train and test on this dataset instead")
    parser.add_argument(
        "--precision", type=Precision, default="32-true", help="bf16-mixed where the CPU has it"
    )
    parser.add_argument(
        "--seeds", type=int | None, help="runs of each cell; by default 3, at the paper's size 5"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cells at once, a core each")
    parser.add_argument("--scheduler", type=str | None, help="a Dask cluster: tcp://host:port")
    parser.add_argument("--results", type=str, default="results", help="folder of result rows")
    parser.add_argument("--runs", type=str, default="runs/reproduce", help="folder of the runs")
    parser.add_argument(
        "--take", type=str | None, help="first copy rows from another folder of results"
    )
    parser.add_argument("--show", action="store_true", help="print the rows there are, run nothing")
    parser.add_argument("--plan", action="store_true", help="print cells and minutes, and stop")
    parser.add_argument(
        "--gflops",
        type=float,
        default=50.0,
        help="speed that a plan assumes, in GFLOP/s; a GPU reaches thousands",
    )
    return parser


def run(args: Namespace) -> None:
    """Plan, or run what is missing; then print."""
    if args.print_config is not None:
        sys.stdout.write(config_text(args.print_config))
        return
    if args.id is None:
        raise ValueError(
            f"Expected a table or figure, got none. Give one of {', '.join(TITLES)}; "
            "or --print-config CELL."
        )
    if args.jobs < 1:
        raise ValueError(f"Expected jobs >= 1, got {args.jobs}.")
    seeds = SIZES[args.size].seeds if args.seeds is None else args.seeds
    if seeds < 1:
        raise ValueError(f"Expected seeds >= 1, got {seeds}.")
    if not args.gflops > 0:
        raise ValueError(f"Expected gflops > 0, got {args.gflops}.")
    for folder in (Path(args.results), Path(args.runs)):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"Expected a folder, got {folder}, a file.")
    places = entries(args.id, row=args.row, column=args.column)
    if not cells(places):
        raise ValueError(
            f"The paper took {args.row or args.id} from elsewhere: there is nothing to run."
        )
    jobs = [
        Job(cell, args.size, seed, args.dataset, args.precision)
        for cell in cells(places)
        for seed in range(seeds)
    ]
    results = Results(Path(args.results))
    if args.take is not None:
        taken = take(results, Path(args.take))
        sys.stderr.write(f"{taken} rows of {args.take} are new.\n")
    left = [] if args.show else missing(jobs, results)
    if args.plan:
        plan(args, jobs, left)
        return
    if left:
        sys.stderr.write(
            f"{len(left)} of {len(jobs)} runs have no result for the current data and config.\n"
        )
    with Bar(args.id) as bar:
        for done, row in enumerate(_running(left, results, args), start=1):
            note = f"{row.cell} seed {row.seed}: {100 * row.accuracy:.2f} %"
            bar(done, len(left), note)
    wanted = {(job.cell, job.seed) for job in jobs}
    kind = jobs[0].planned.dataset, args.precision
    rows = [
        row
        for row in results.rows(args.size)
        if (row.cell, row.seed) in wanted and (row.dataset, row.precision) == kind
    ]
    show(args, table(places, rows))


def _running(left: list[Job], results: Results, args: Namespace) -> Iterator[Row]:
    runs = Path(args.runs).resolve()  # workers may be elsewhere
    if args.jobs == 1 and args.scheduler is None:
        return reproduce(left, results, runs)
    return reproduce_on(left, results, runs, workers=args.jobs, scheduler=args.scheduler)


def plan(args: Namespace, jobs: list[Job], left: list[Job]) -> None:
    """Print what there is to run, and how long it should take."""
    rows: list[dict[str, Any]] = []
    for cell in dict.fromkeys(job.cell for job in jobs):
        first = next(job for job in jobs if job.cell == cell)
        size = SIZES[args.size]
        rows.append(
            {
                "cell": cell,
                "runs": sum(job.cell == cell for job in jobs),
                "left": sum(job.cell == cell for job in left),
                "minutes": minutes(first.planned, size, args.gflops),
                "pflop": flop(first.planned, size) / 1e15,
            }
        )
    total = sum(row["minutes"] * row["left"] for row in rows) / args.jobs
    if args.json:
        report = {"id": args.id, "size": args.size, "cells": rows, "minutes": total}
        sys.stdout.write(json.dumps(report) + "\n")
        return
    shown = Table("cell", "runs", "left", "minutes each", "PFLOP each")
    for row in rows:
        shown.add_row(
            row["cell"],
            str(row["runs"]),
            str(row["left"]),
            f"{row['minutes']:,.1f}",
            f"{row['pflop']:.3g}",
        )
    console = Console(highlight=False)
    console.print(shown)
    pflop = sum(row["pflop"] * row["left"] for row in rows)
    console.print(
        f"{len(left)} of {len(jobs)} runs are left: {pflop:.3g} PFLOP, about {total / 60:,.1f} "
        f"hours with {args.jobs} at once if each reaches {args.gflops:g} GFLOP/s (--gflops). "
        "Estimated from Conv-4's operations plus 1.5 ms overhead per step."
    )


def show(args: Namespace, lines: list[Line]) -> None:
    """Print reported, ours and their difference."""
    if args.json:
        report = [
            {
                "row": line.entry.row,
                "column": line.entry.column,
                "cells": line.entry.cells,
                "reported": line.entry.accuracy,
                "reported_ci95": line.entry.interval,
                "ours": line.ours,
                "t95": line.half,
                "difference": line.difference,
                "seeds": [row.seed for row in line.rows],
            }
            for line in lines
        ]
        output = {"id": args.id, "size": args.size, "cells": report}
        sys.stdout.write(json.dumps(output) + "\n")
        return
    shown = Table("row", "column", "reported %", "ours %", "difference", "runs")
    for line in lines:
        shown.add_row(
            line.entry.row,
            line.entry.column,
            line.entry.published,
            format_figure(line.ours, line.half),
            "" if line.difference is None else f"{line.difference:+.2f}",
            str(len(line.rows)),
        )
    console = Console(highlight=False)
    console.print(shown)
    rows = [row for line in lines for row in line.rows]
    if not rows:
        console.print(f"There are no rows at size {args.size} in {args.results}.")
    else:
        one, size = rows[0], SIZES[args.size]
        console.print(
            f"Ours: {args.size} size ({size.summary}), {one.dataset} ({one.dataset_hash[:12]}), "
            f"items {one.item}, {one.precision}, {one.steps:,} steps, {one.episodes:,} test "
            f"episodes of "
            f"{one.n_query} queries a "
            f"class, ± Student's t over runs. Reported: 84x84, all of miniImageNet."
        )
