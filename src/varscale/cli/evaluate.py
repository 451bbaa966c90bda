"""`varscale eval`: test a run, or several seeds of it, on seeded test tasks."""

import warnings
from pathlib import Path

from jsonargparse import Namespace
from rich.table import Column, Table

from varscale.cli.output import reply
from varscale.cli.parser import command, option, take
from varscale.cli.train import is_main
from varscale.core.processes import ALONE, Processes
from varscale.evaluation.evaluation import save_evaluation
from varscale.report.text import describe, in_words, percent
from varscale.runs.scores import Test, facts, over_seeds, runs_in, score, task_of


@command(
    "Test a run: accuracy with its 95 % interval, NLL, ECE and Brier score. The same options give "
    "every run the same tasks.",
    "varscale eval runs/svs --episodes 10000 --n_way 5 --n_shot 1",
    option("run", "run directory, or a folder of runs with different seeds"),
    option("--devices", "number of processes that share the work", default=1),
    Test,
)
def run(args: Namespace) -> None:
    """Test, store the figures in the run directory, and print them."""
    test = take(args, Test)
    runs = runs_in(Path(args.run))
    for run in runs:
        task_of(run, test)  # an error before any work
    processes = processes_of(args.devices)
    scores = [score(run, test, processes) for run in runs]
    if not is_main():
        return
    reports = []
    for run, result in zip(runs, scores, strict=True):
        report = {"run": str(run.path), **result.summary(), **facts(run, test)}
        reports.append(report)
        try:
            save_evaluation(run.path / "eval", report, result)
        except OSError as error:
            warnings.warn(f"The figures are not stored: {error.strerror}.", stacklevel=2)
    several = over_seeds([r["accuracy"] for r in reports]) if len(reports) > 1 else {}
    table = Table(Column("run", overflow="fold"), "accuracy %", "NLL", "ECE %", "Brier")
    for report in reports:
        accuracy = percent(report["accuracy"], report["ci95"])
        nll = f"{report['nll']:.4f} ± {report['nll_ci95']:.4f}"
        others = f"{100 * report['ece']:.2f}", f"{report['brier']:.4f}"
        table.add_row(report["run"], accuracy, nll, *others)
    notes = [in_words(several)] if several else []
    notes.append(f"{describe(reports[0])}; intervals are 95 % over tasks.")
    unfinished = [report["run"] for report in reports if report["train_steps"] is None]
    if unfinished:
        notes.append(f"Not finished: {', '.join(unfinished)}; this is the best model so far.")
    worst = sorted(reports[0]["per_class"].items(), key=lambda item: item[1])[:3]
    hardest = ", ".join(f"{name} {100 * rate:.0f} %" for name, rate in worst)
    notes.append(
        f"Hardest classes: {hardest}. All classes, and the confusion matrix: "
        f"{runs[0].path / 'eval'}"
    )
    whole = {"seeds": several, "runs": reports} if several else reports[0]
    reply(args, whole, [table, *notes])


def processes_of(devices: int) -> Processes:
    """Start `devices` processes that share the cores, and return this one's place."""
    if devices < 1:
        raise ValueError(f"Expected devices >= 1, got {devices}.")
    if devices == 1:
        return ALONE
    from varscale.runs.launch import launch

    fabric = launch(devices, accelerator="cpu")
    return Processes(fabric.global_rank, fabric.world_size, fabric.device)
