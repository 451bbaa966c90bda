"""`varscale compare`: the difference of two runs on the same test tasks."""

import json
import sys
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Column, Table

from varscale.cli.evaluate import (
    Test,
    described,
    facts,
    in_words,
    over_seeds,
    percent,
    runs_in,
    score,
    task_of,
    test_of,
)
from varscale.cli.parser import Parser, command
from varscale.evaluation import Evaluation
from varscale.metrics import interval
from varscale.run import Run


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Compare two runs, or two folders of seeds, on the same test tasks.",
        "varscale compare runs/pn runs/svs --episodes 10000",
    )
    parser.add_argument("run_a", type=str, help="a run directory, or a folder of them")
    parser.add_argument("run_b", type=str, help="what to compare it with")
    parser.add_class_arguments(Test, None)
    return parser


def run(args: Namespace) -> None:
    """Score both on the same tasks, and print the paired difference."""
    pairs = paired(Path(args.run_a), Path(args.run_b))
    test = test_of(args)
    datasets = {run.config.dataset for pair in pairs for run in pair}
    if test.dataset is None and len(datasets) > 1:
        raise ValueError(
            f"The runs were trained on {' and '.join(sorted(datasets))}. Say by --dataset which "
            "to test them on."
        )
    test = settled(test, pairs[0][0])
    for pair in pairs:
        for run in pair:
            task_of(run, test)
    rows = [compared(a, b, score(a, test), score(b, test)) for a, b in pairs]
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
    console.print(f"{described(report)}; intervals are 95 % over tasks.")


def paired(path_a: Path, path_b: Path) -> list[tuple[Run, Run]]:
    """Runs of both sides, seed by seed."""
    sides = [{run.config.seed: run for run in runs_in(path)} for path in (path_a, path_b)]
    if len(sides[0]) == len(sides[1]) == 1:  # two runs are compared whatever their seeds
        return [(*sides[0].values(), *sides[1].values())]  # type: ignore[list-item]
    if set(sides[0]) != set(sides[1]):
        raise ValueError(
            f"Expected the same seeds on both sides, got {sorted(sides[0])} in {path_a} and "
            f"{sorted(sides[1])} in {path_b}."
        )
    return [(sides[0][seed], sides[1][seed]) for seed in sorted(sides[0])]


def settled(test: Test, run: Run) -> Test:
    """The test with the first run's defaults filled in: the same tasks for all."""
    sampler = task_of(run, test)[1]
    return Test(
        **{
            **vars(test),
            "n_way": sampler.n_way,
            "n_shot": sampler.shots.tolist(),
            "n_query": sampler.n_query,
            "dataset": test.dataset or run.config.dataset,
        }
    )


def compared(run_a: Run, run_b: Run, a: Evaluation, b: Evaluation) -> dict[str, Any]:
    """Both runs' figures, and the difference task by task."""
    difference, half = interval(b.accuracy - a.accuracy)
    nll, nll_half = interval(b.nll - a.nll)
    sides = {}
    for name, run, scores in (("a", run_a, a), ("b", run_b, b)):
        summary = scores.summary()
        del summary["per_class"]
        sides[name] = {"run": str(run.path), **summary}
    return {
        **sides,
        "difference": difference,
        "ci95": half,
        "nll_difference": nll,
        "nll_ci95": nll_half,
    }
