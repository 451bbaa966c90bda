"""`varscale reproduce`: a table or figure of the paper, reported beside ours."""

import sys
from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace
from rich.table import Table

from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.cli.progress import Bar
from varscale.core.precision import Precision
from varscale.paper.cluster import reproduce_on
from varscale.paper.cost import flop, minutes
from varscale.paper.grid import TITLES, cells, config_text, entries, format_figure
from varscale.paper.importer import take
from varscale.paper.reproduce import Job, missing, reproduce
from varscale.paper.results import Results
from varscale.paper.sizes import SIZES
from varscale.paper.tables import Line, table


@command(
    "Run the cells of a table or figure that are missing, and print reported beside ours.",
    "varscale reproduce table2 --size small --plan",
    option("id", ", ".join(TITLES), nargs="?"),
    option("--print-config", "print the config of a cell as YAML, as the paper has it"),
    option(
        "--size",
        "; ".join(f"{name}: {size.summary}" for name, size in SIZES.items()),
        Literal["small", "paper", "frozen"],
        default="small",
    ),
    option("--row", 'one row, such as "PN + SVS"'),
    option("--column", 'one column, such as "1-shot cosine"'),
    option("--dataset", "train and test on this dataset instead"),
    option("--precision", "bf16-mixed where the CPU has it", Precision, default="32-true"),
    option("--seeds", "runs of each cell; by default 3, at the paper's size 5", int),
    option("--jobs", "cells at once, a core each", default=1),
    option("--scheduler", "a Dask cluster: tcp://host:port"),
    option("--results", "folder of result rows", default="results"),
    option("--runs", "folder of the runs", default="runs/reproduce"),
    option("--take", "first copy rows from another folder of results"),
    option("--show", "print the rows there are, run nothing", action="store_true"),
    option("--plan", "print cells and minutes, and stop", action="store_true"),
    option(
        "--gflops", "speed that a plan assumes, in GFLOP/s; a GPU reaches thousands", default=50.0
    ),
)
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
    seeds = SIZES[args.size].seeds if args.seeds is None else args.seeds
    for name, count in {"jobs": args.jobs, "seeds": seeds}.items():
        if count < 1:
            raise ValueError(f"Expected {name} >= 1, got {count}.")
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
        runs = Path(args.runs).resolve()  # workers may be elsewhere
        if args.jobs == 1 and args.scheduler is None:
            running = reproduce(left, results, runs)
        else:
            workers = {"workers": args.jobs, "scheduler": args.scheduler}
            running = reproduce_on(left, results, runs, **workers)
        for done, row in enumerate(running, start=1):
            bar(done, len(left), f"{row.cell} seed {row.seed}: {100 * row.accuracy:.2f} %")
    wanted = {(job.cell, job.seed) for job in jobs}
    kind = jobs[0].planned.dataset, args.precision
    rows = [
        row
        for row in results.rows(args.size)
        if (row.cell, row.seed) in wanted and (row.dataset, row.precision) == kind
    ]
    show(args, table(places, rows))


def plan(args: Namespace, jobs: list[Job], left: list[Job]) -> None:
    """Print what there is to run, and how long it should take."""
    size = SIZES[args.size]
    rows: list[dict[str, Any]] = [
        {
            "cell": cell,
            "runs": sum(job.cell == cell for job in jobs),
            "left": sum(job.cell == cell for job in left),
            "minutes": minutes(one.planned, size, args.gflops),
            "pflop": flop(one.planned, size) / 1e15,
        }
        for cell, one in {job.cell: job for job in jobs}.items()
    ]
    total = sum(row["minutes"] * row["left"] for row in rows) / args.jobs
    shown = Table("cell", "runs", "left", "minutes each", "PFLOP each")
    for row in rows:
        each = f"{row['minutes']:,.1f}", f"{row['pflop']:.3g}"
        shown.add_row(row["cell"], str(row["runs"]), str(row["left"]), *each)
    pflop = sum(row["pflop"] * row["left"] for row in rows)
    note = (
        f"{len(left)} of {len(jobs)} runs are left: {pflop:.3g} PFLOP, about {total / 60:,.1f} "
        f"hours with {args.jobs} at once if each reaches {args.gflops:g} GFLOP/s (--gflops). "
        "Estimated from Conv-4's operations plus 1.5 ms overhead per step."
    )
    report = {"id": args.id, "size": args.size, "cells": rows, "minutes": total}
    reply(args, report, [shown, note])


def show(args: Namespace, lines: list[Line]) -> None:
    """Print reported, ours and their difference."""
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
    shown = Table("row", "column", "reported %", "ours %", "difference", "runs")
    for line in lines:
        entry, ours = line.entry, format_figure(line.ours, line.half)
        gap = "" if line.difference is None else f"{line.difference:+.2f}"
        shown.add_row(entry.row, entry.column, entry.published, ours, gap, str(len(line.rows)))
    note = f"There are no rows at size {args.size}, {args.precision}, in {args.results}."
    if one := next((row for line in lines for row in line.rows), None):
        note = (
            f"Ours: {args.size} size ({SIZES[args.size].summary}), {one.dataset} "
            f"({one.dataset_hash[:12]}), items {one.item}, {one.precision}, {one.steps:,} steps, "
            f"{one.episodes:,} test episodes of {one.n_query} queries a class, ± Student's t over "
            "runs. Reported: 84x84, all of miniImageNet."
        )
    reply(args, {"id": args.id, "size": args.size, "cells": report}, [shown, note])
