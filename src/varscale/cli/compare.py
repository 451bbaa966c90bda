"""`varscale compare`: compare two runs on the same test tasks."""

import json
import sys
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Column, Table

from varscale.cli.evaluate import test_of
from varscale.cli.parser import Parser, command
from varscale.evaluation import compare
from varscale.report.text import describe, in_words, percent
from varscale.runs import Run
from varscale.runs.scores import (
    Test,
    facts,
    over_seeds,
    runs_in,
    score,
    settle,
    task_of,
)


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Compare two runs, or two folders of runs with different seeds, on the same test tasks.",
        "varscale compare runs/pn runs/svs --episodes 10000",
    )
    parser.add_argument("run_a", type=str, help="run directory, or a folder of runs")
    parser.add_argument(
        "run_b", type=str, help="run directory to compare it with, or a folder of runs"
    )
    parser.add_class_arguments(Test, None)
    return parser


def run(args: Namespace) -> None:
    """Test both on the same tasks, and print the paired difference."""
    pairs = pair(Path(args.run_a), Path(args.run_b))
    test = test_of(args)
    datasets = {run.config.dataset for both in pairs for run in both}
    if test.dataset is None and len(datasets) > 1:
        raise ValueError(
            f"The runs were trained on {' and '.join(sorted(datasets))}. Choose the dataset to "
            "test them on: --dataset NAME."
        )
    test = settle(test, pairs[0][0])
    for both in pairs:
        for run in both:
            task_of(run, test)
    rows = [compare(score(a, test), score(b, test)) for a, b in pairs]
    for row, (a, b) in zip(rows, pairs, strict=True):
        row["a"]["run"], row["b"]["run"] = str(a.path), str(b.path)
    report: dict[str, Any] = {"pairs": rows}
    if len(rows) > 1:
        report["seeds"] = over_seeds([row["difference"] for row in rows])
    first = pairs[0][0]
    report |= {"episodes": test.episodes, **facts(first, test, task_of(first, test)[1])}
    if args.json:
        sys.stdout.write(json.dumps(report) + "\n")
        return
    table = Table(Column("run", overflow="fold"), "accuracy %", "B - A, paired", "NLL", "ECE %")
    for row in rows:
        for side in ("a", "b"):
            figures = row[side]
            table.add_row(
                f"{side.upper()} {figures['run']}",
                percent(figures["accuracy"], figures["ci95"]),
                percent(row["difference"], row["ci95"]) if side == "b" else "",
                f"{figures['nll']:.4f}",
                f"{100 * figures['ece']:.2f}",
                end_section=side == "b",
            )
    console = Console(highlight=False)
    console.print(table)
    if "seeds" in report:
        console.print(f"B - A {in_words(report['seeds'])}")
    console.print(f"{describe(report)}; intervals are 95 % over tasks.")


def pair(path_a: Path, path_b: Path) -> list[tuple[Run, Run]]:
    """Pair the runs of two folders seed by seed."""
    sides = [{run.config.seed: run for run in runs_in(path)} for path in (path_a, path_b)]
    if len(sides[0]) == len(sides[1]) == 1:  # two runs are compared whatever their seeds
        return [(*sides[0].values(), *sides[1].values())]  # type: ignore[list-item]
    if set(sides[0]) != set(sides[1]):
        raise ValueError(
            f"Expected the same seeds on both sides, got {sorted(sides[0])} in {path_a} and "
            f"{sorted(sides[1])} in {path_b}."
        )
    return [(sides[0][seed], sides[1][seed]) for seed in sorted(sides[0])]
