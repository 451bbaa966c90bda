"""`varscale demo`: train with and without a learned scale on letters that varscale draws."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table

from varscale.cli.parser import Parser, command
from varscale.cli.train import train_quietly
from varscale.core.files import write_whole
from varscale.data import Dataset
from varscale.data.store import data_root, list_prepared
from varscale.evaluation import Evaluation, compare
from varscale.report.html import page
from varscale.report.plots import overview
from varscale.report.runs import run_sections
from varscale.report.text import describe, percent
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve
from varscale.runs.config_files import read_config, shipped_configs
from varscale.runs.logbook import read_metrics
from varscale.runs.scores import Test, facts, score, task_of

METHODS = {"no scaling": "pn", "SVS": "svs", "D-SVS": "dsvs", "D-AVS": "davs"}


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Train with and without a learned scale on the same tasks, and compare. Takes a few "
        "minutes.",
        "varscale demo --out demo",
    )
    parser.add_argument(
        "--out", type=str, default="demo", metavar="FOLDER", help="folder for runs and plots"
    )
    parser.add_argument(
        "--steps",
        type=int | None,
        help="training steps of each run; by default those of the configs",
    )
    parser.add_argument("--episodes", type=int, default=10_000, help="test tasks of each run")
    return parser


def run(args: Namespace) -> None:
    """Train what is not trained yet, test every run, print the table and draw the plots."""
    began, out = time.monotonic(), Path(args.out)
    test = Test(episodes=args.episodes)
    if "glyphs" not in list_prepared(data_root()):
        sys.stderr.write("glyphs: drawing letters of ten scripts, about 15 seconds\n")
    dataset = Dataset.open("glyphs")
    runs: dict[str, tuple[Run, Evaluation]] = {}
    for name, file in METHODS.items():
        config = read_config(shipped_configs() / "glyphs" / f"{file}.yaml")
        if args.steps is not None:
            config = TrainConfig(**{**vars(config), "steps": args.steps})
        run = train_or_open(out / file, resolve(config, dataset), dataset)
        runs[name] = run, score(run, test)
    base, base_scores = runs["no scaling"]
    rows: dict[str, Any] = {
        name: {**compare(base_scores, scores), "run": str(run.path), "scale": final_scale(run)}
        for name, (run, scores) in runs.items()
    }
    report: dict[str, Any] = {"methods": rows, "episodes": args.episodes}
    report |= facts(base, test, task_of(base, test)[1])
    report |= {"plots": str(out / "demo.png"), "report": str(out / "report.html")}
    title = f"{describe(report)}; {base.config.steps:,} training steps, seed {base.config.seed}"
    overview(
        {name: (run.path, scores) for name, (run, scores) in runs.items()},
        out / "demo.png",
        title=title,
    )
    page_of_it = page("varscale demo", run_sections(runs, test))
    write_whole(Path(report["report"]), page_of_it.encode())
    if args.json:
        sys.stdout.write(json.dumps(report) + "\n")
        return
    table = Table(
        "method", "accuracy %", "gain, paired", "NLL", "ECE %", "scale: mean (min .. max)"
    )
    for name, row in rows.items():
        gain = "" if name == "no scaling" else percent(row["difference"], row["ci95"])
        low, mean, high = row["scale"]
        table.add_row(
            name,
            percent(row["b"]["accuracy"], row["b"]["ci95"]),
            gain,
            f"{row['b']['nll']:.3f}",
            f"{100 * row['b']['ece']:.1f}",
            f"{mean:.3g}" if low == high else f"{mean:.3g} ({low:.3g} .. {high:.3g})",
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"{title}. Intervals: 95 % over tasks. Gains: paired, task by task.")
    console.print(
        f"Conv-4, cosine. Plots: {report['plots']}; a page with the worst tasks: "
        f"{report['report']}. {time.monotonic() - began:.0f} s."
    )


def train_or_open(path: Path, config: TrainConfig, dataset: Dataset) -> Run:
    """Return the finished run at a path; create or resume it if necessary."""
    run = Run.open(path) if path.exists() else Run.create(path, config, dataset)
    if run.config.hash != config.hash:
        raise ValueError(
            f"{path} was made with other settings. Remove it, or choose another folder: "
            "--out FOLDER."
        )
    if run.result is None:
        train_quietly(path, config, title=path.name)
    return run


def final_scale(run: Run) -> tuple[float, float, float]:
    """Smallest, mean and largest entry of the scale at the step of the best model."""
    best = (run.result or {})["best_step"]
    rows = read_metrics(run.path, until=best)
    if not rows:
        raise ValueError(f"{run.path} has no metrics. Remove it, and run the demo again.")
    row = rows[-1]
    return row["scale_min"], row["scale_mean"], row["scale_max"]
