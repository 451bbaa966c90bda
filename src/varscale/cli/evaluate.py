"""`varscale eval`: test a run, or several seeds of it, on seeded test tasks."""

import json
import sys
import warnings
from pathlib import Path

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Column, Table

from varscale.cli.parser import Parser, command
from varscale.cli.train import is_main
from varscale.core.processes import ALONE, Processes
from varscale.evaluation.evaluation import save_evaluation
from varscale.report.text import describe, in_words, percent
from varscale.runs.scores import (
    Test,
    facts,
    over_seeds,
    runs_in,
    score,
    task_of,
)


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Test a run: accuracy with its 95 % interval, NLL, ECE and Brier score. The same options "
        "give every run the same tasks.",
        "varscale eval runs/svs --episodes 10000 --n_way 5 --n_shot 1",
    )
    parser.add_argument(
        "run", type=str, help="run directory, or a folder of runs with different seeds"
    )
    parser.add_argument(
        "--devices", type=int, default=1, help="number of processes that share the work"
    )
    parser.add_class_arguments(Test, None)
    return parser


def run(args: Namespace) -> None:
    """Test, store the figures in the run directory, and print them."""
    test = test_of(args)
    runs = runs_in(Path(args.run))
    checked = [(run, *task_of(run, test)) for run in runs]
    processes = processes_of(args.devices)
    scores = [score(run, test, processes) for run in runs]
    if not is_main():
        return
    reports = []
    for (run, _, sampler), result in zip(checked, scores, strict=True):
        report = {"run": str(run.path), **result.summary(), **facts(run, test, sampler)}
        reports.append(report)
        try:
            save_evaluation(run.path / "eval", report, result)
        except OSError as error:
            warnings.warn(f"The figures are not stored: {error.strerror}.", stacklevel=2)
    several = over_seeds([r["accuracy"] for r in reports]) if len(reports) > 1 else {}
    if args.json:
        report = {"seeds": several, "runs": reports} if several else reports[0]
        sys.stdout.write(json.dumps(report) + "\n")
        return
    table = Table(Column("run", overflow="fold"), "accuracy %", "NLL", "ECE %", "Brier")
    for report in reports:
        table.add_row(
            report["run"],
            percent(report["accuracy"], report["ci95"]),
            f"{report['nll']:.4f} ± {report['nll_ci95']:.4f}",
            f"{100 * report['ece']:.2f}",
            f"{report['brier']:.4f}",
        )
    console = Console(highlight=False)
    console.print(table)
    if several:
        console.print(in_words(several))
    console.print(f"{describe(reports[0])}; intervals are 95 % over tasks.")
    unfinished = [report["run"] for report in reports if report["train_steps"] is None]
    if unfinished:
        console.print(f"Not finished: {', '.join(unfinished)}; this is the best model so far.")
    worst = sorted(reports[0]["per_class"].items(), key=lambda item: item[1])[:3]
    hardest = ", ".join(f"{name} {100 * rate:.0f} %" for name, rate in worst)
    console.print(
        f"Hardest classes: {hardest}. All classes, and the confusion matrix: "
        f"{runs[0].path / 'eval'}"
    )


def test_of(args: Namespace) -> Test:
    """The test that the options describe."""
    return Test(**{name: args[name] for name in Test.__dataclass_fields__})


def processes_of(devices: int) -> Processes:
    """Start `devices` processes that share the cores, and return this one's place."""
    if devices < 1:
        raise ValueError(f"Expected devices >= 1, got {devices}.")
    if devices == 1:
        return ALONE
    from varscale.runs.launch import launch

    fabric = launch(devices, accelerator="cpu")
    return Processes(fabric.global_rank, fabric.world_size, fabric.device)
