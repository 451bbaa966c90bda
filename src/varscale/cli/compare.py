"""`varscale compare`: compare two runs on the same test tasks."""

from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.table import Column, Table

from varscale.cli.output import reply
from varscale.cli.parser import command, option, take
from varscale.evaluation import compare
from varscale.report.text import describe, in_words, percent
from varscale.runs import Run
from varscale.runs.scores import Test, facts, over_seeds, runs_in, score, settle, task_of


@command(
    "Compare two runs, or two folders of runs with different seeds, on the same test tasks.",
    "varscale compare runs/pn runs/svs --episodes 10000",
    option("run_a", "run directory, or a folder of runs"),
    option("run_b", "run directory to compare it with, or a folder of runs"),
    Test,
)
def run(args: Namespace) -> None:
    """Test both on the same tasks, and print the paired difference."""
    pairs = pair(Path(args.run_a), Path(args.run_b))
    test = take(args, Test)
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
    report |= {"episodes": test.episodes, **facts(pairs[0][0], test)}
    table = Table(Column("run", overflow="fold"), "accuracy %", "B - A, paired", "NLL", "ECE %")
    for row in rows:
        for side, gap in (("a", ""), ("b", percent(row["difference"], row["ci95"]))):
            figures, name = row[side], f"{side.upper()} {row[side]['run']}"
            accuracy = percent(figures["accuracy"], figures["ci95"])
            others = f"{figures['nll']:.4f}", f"{100 * figures['ece']:.2f}"
            table.add_row(name, accuracy, gap, *others, end_section=side == "b")
    notes = [f"B - A {in_words(report['seeds'])}"] if "seeds" in report else []
    notes.append(f"{describe(report)}; intervals are 95 % over tasks.")
    unfinished = [str(run.path) for both in pairs for run in both if run.result is None]
    if unfinished:
        notes.append(f"Not finished: {', '.join(unfinished)}; this is the best model so far.")
    reply(args, report, [table, *notes])


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
