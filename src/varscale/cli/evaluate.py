"""`varscale eval`: score a run, or several seeds of one, on seeded test tasks."""

import json
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jsonargparse import Namespace
from rich.console import Console
from rich.table import Column, Table

from varscale.allocator import keep_memory
from varscale.cli.parser import Parser, command
from varscale.cli.train import is_main
from varscale.data.sampler import EpisodeSampler, Queries
from varscale.distributed import ALONE, Processes
from varscale.evaluation import Evaluation, evaluate, save_evaluation
from varscale.metrics import interval, t_interval
from varscale.run import PROVENANCE, Run


@dataclass(frozen=True)
class Test:
    """Which tasks a model is tested on; way and shot are by default those of the validation.

    Args:
        episodes: Test tasks.
        n_way: Classes per task.
        n_shot: Supports per class; or a list, one number for each class of a task.
        n_query: Queries: see queries; by default the run's test_query.
        queries: balanced (n_query of each class) or random (n_query per task, from all classes).
        dataset: Another dataset, of the same item shape.
        split: Which classes: train, val or test.
        seed: Seed of the tasks: the same tasks for every run.
        samples: Draws of the scale to average the prediction over; 0 uses its mean.
    """

    episodes: int = 10_000
    n_way: int | None = None
    n_shot: int | list[int] | None = None
    n_query: int | None = None
    queries: Queries = "balanced"
    dataset: str | None = None
    split: Literal["train", "val", "test"] = "test"
    seed: int = 0
    samples: int = 0

    def __post_init__(self) -> None:
        if self.episodes < 2:
            raise ValueError(f"Expected episodes >= 2 for an interval, got {self.episodes}.")
        if self.n_query is not None and self.n_query < 1:
            raise ValueError(f"Expected n_query >= 1, got {self.n_query}.")


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Score a run on test tasks: accuracy with its interval, NLL, ECE, Brier score.",
        "varscale eval runs/svs --episodes 10000 --n_way 5 --n_shot 1",
    )
    parser.add_argument("run", type=str, help="a run directory; or a folder of them, one per seed")
    parser.add_argument("--devices", type=int, default=1, help="processes that share the work")
    parser.add_class_arguments(Test, None)
    return parser


def run(args: Namespace) -> None:
    """Score, store the figures beside the model, and print them."""
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
    console.print(f"{described(reports[0])}; intervals are 95 % over tasks.")
    unfinished = [report["run"] for report in reports if report["train_steps"] is None]
    if unfinished:
        console.print(f"Not finished: {', '.join(unfinished)}; this is the best model so far.")
    worst = sorted(reports[0]["per_class"].items(), key=lambda item: item[1])[:3]
    hardest = ", ".join(f"{name} {100 * rate:.0f} %" for name, rate in worst)
    console.print(
        f"Hardest classes: {hardest}. All of them, and the confusion matrix: "
        f"{runs[0].path / 'eval'}"
    )


def test_of(args: Namespace) -> Test:
    """The test that the options ask for."""
    return Test(**{name: args[name] for name in Test.__dataclass_fields__})


def runs_in(path: Path) -> list[Run]:
    """The run at a path, or the runs in its subfolders."""
    if (path / PROVENANCE).is_file():
        return [Run.open(path)]
    found = sorted(p.parent for p in path.glob(f"*/{PROVENANCE}"))
    if not found:
        raise ValueError(f"Expected a run directory, or a folder of them, got {path}.")
    runs = [Run.open(p) for p in found]
    kinds = {replace(run.config, seed=0).hash for run in runs}
    if len(kinds) > 1 or len({run.config.seed for run in runs}) < len(runs):
        raise ValueError(
            f"Expected runs in {path} that differ in their seeds alone, got "
            f"{', '.join(p.name for p in found)}. Give one of them."
        )
    return runs


def task_of(run: Run, test: Test) -> tuple[Any, EpisodeSampler]:
    """The split and the sampler of a run's test."""
    config = run.config
    split = run.dataset(test.dataset)[test.split]
    _, *item = split.dataset.items.shape
    _, *own = run.dataset().items.shape
    if item != own:
        raise ValueError(
            f"{run.path} was trained on items of {own}; {split.dataset.name} has {item}. "
            "Prepare it in the same size."
        )
    n_shot = config.n_shot if test.n_shot is None else test.n_shot
    sampler = EpisodeSampler(
        split.labels,
        n_way=(config.val_way or config.n_way) if test.n_way is None else test.n_way,
        n_shot=n_shot,
        n_query=(config.test_query or 15) if test.n_query is None else test.n_query,
        queries=test.queries,
        seed=test.seed,
        stream=test.split,
    )
    return split, sampler


def score(run: Run, test: Test, processes: Processes = ALONE) -> Evaluation:
    """A run's best model on the test's tasks."""
    keep_memory()
    split, sampler = task_of(run, test)
    return evaluate(
        run.model(),
        split,
        sampler,
        episodes=test.episodes,
        samples=test.samples,
        processes=processes,
    )


def processes_of(devices: int) -> Processes:
    """This process among `devices` of them; they share the cores."""
    if devices < 1:
        raise ValueError(f"Expected devices >= 1, got {devices}.")
    if devices == 1:
        return ALONE
    from varscale.launch import launched

    fabric = launched(devices, accelerator="cpu")
    return Processes(fabric.global_rank, fabric.world_size, fabric.device)


def facts(run: Run, test: Test, sampler: EpisodeSampler) -> dict[str, Any]:
    """All that has to stand beside a figure."""
    dataset = run.dataset(test.dataset)
    return {
        "dataset": dataset.name,
        "dataset_hash": dataset.hash,
        "split": test.split,
        "item": list(dataset.items.shape[1:]),
        "n_way": sampler.n_way,
        "n_shot": sampler.shots.tolist() if len(set(sampler.shots)) > 1 else int(sampler.shots[0]),
        "n_query": sampler.n_query,
        "queries": sampler.queries,
        "seed": test.seed,
        "samples": test.samples,
        "scaler": run.config.scaler,
        "train_seed": run.config.seed,
        "train_steps": (run.result or {}).get("steps"),
        "config_hash": run.config.hash,
        "threads": torch.get_num_threads(),
    }


def described(report: dict[str, Any]) -> str:
    """The facts of a report, in a sentence."""
    item = "x".join(map(str, report["item"]))
    each = "a class" if report["queries"] == "balanced" else "a task"
    return (
        f"{report['dataset']} ({report['dataset_hash'][:12]}), {report['split']} classes, items "
        f"{item}, {report['n_way']}-way {report['n_shot']}-shot, {report['n_query']} queries "
        f"{each}, {report['episodes']:,} episodes, seed {report['seed']}"
        + (f", {report['samples']} draws of the scale" if report["samples"] else "")
    )


def over_seeds(values: list[float]) -> dict[str, Any]:
    """Mean over runs, with the published interval and the t-interval (M20)."""
    mean, half = interval(values)
    return {"n": len(values), "mean": mean, "ci95": half, "t95": t_interval(values)[1]}


def in_words(several: dict[str, Any]) -> str:
    """A mean over seeds, with both intervals."""
    return (
        f"over {several['n']} runs: {percent(several['mean'], several['ci95'])} (1.96 s/√n, as "
        f"published), ± {100 * several['t95']:.2f} by Student's t"
    )


def percent(mean: float, half: float) -> str:
    """A fraction and its half-width in per cent."""
    return f"{100 * mean:.2f} ± {100 * half:.2f}"
