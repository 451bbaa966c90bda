"""`varscale demo`: a grid of fixed scales beside learned ones, on letters that varscale draws."""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.table import Table

from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.cli.train import train_with_progress
from varscale.core.files import check_target, is_our_png, write_whole
from varscale.core.interrupted import Interrupted
from varscale.data import Dataset
from varscale.data.store import data_root, list_prepared
from varscale.evaluation import Evaluation, compare
from varscale.report.html import check_page, page
from varscale.report.plots import overview
from varscale.report.runs import run_sections
from varscale.report.text import describe, percent
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve
from varscale.runs.config_files import read_config, shipped_configs
from varscale.runs.logbook import read_metrics
from varscale.runs.scores import Test, facts, score

GRID = (1.0, 10.0, 100.0)
"""Fixed scales, which a grid search would try."""
LEARNED = {"SVS": "svs", "D-SVS": "dsvs", "D-AVS": "davs"}
"""Configs of the learned ones."""


@command(
    "Train with a grid of fixed scales and with learned ones on the same tasks, and compare. Takes "
    "three to five minutes.",
    "varscale demo --out demo",
    option("--out FOLDER", "folder for runs and plots", default="demo"),
    option("--steps", "training steps of each run; by default those of the configs", int),
    option("--episodes", "test tasks of each run", default=10_000),
)
def run(args: Namespace) -> None:
    """Train what is not trained yet, test every run, print the table and draw the plots."""
    began, out = time.monotonic(), Path(args.out)
    check_target(out / "demo.png", "a plot", is_our_png, makes_folder=True)
    check_page(out / "report.html", makes_folder=True)
    test = Test(episodes=args.episodes)
    if "glyphs" not in list_prepared(data_root()):
        sys.stderr.write("glyphs: drawing letters of ten scripts, about 15 seconds\n")
    dataset = Dataset.open("glyphs")
    runs: dict[str, tuple[Run, Evaluation]] = {}
    for name, file, changed in plan():
        config = replace(read_config(shipped_configs() / "glyphs" / f"{file}.yaml"), **changed)
        if args.steps is not None:
            config = replace(config, steps=args.steps)
        folder = name.lower().replace(" ", "")
        run = train_or_open(out / folder, resolve(config, dataset), dataset)
        runs[name] = run, score(run, test)
    grid = [name for name in runs if name not in LEARNED]
    chosen = max(grid, key=lambda name: (runs[name][0].result or {})["val_accuracy"])
    base, base_scores = runs[chosen]
    rows: dict[str, Any] = {
        name: {**compare(base_scores, scores), "run": str(run.path), "scale": final_scale(run)}
        for name, (run, scores) in runs.items()
    }
    report: dict[str, Any] = {"methods": rows, "best_of_grid": chosen, "episodes": args.episodes}
    report |= facts(base, test)
    report |= {"plots": str(out / "demo.png"), "report": str(out / "report.html")}
    title = f"{describe(report)}; {base.config.steps:,} training steps, seed {base.config.seed}"
    overview(runs, out / "demo.png", title=title)
    html = page("varscale demo", run_sections(runs, test))
    write_whole(out / "report.html", html.encode())
    table = Table(
        "scale", "accuracy %", f"minus {chosen}", "NLL", "ECE %", "value: mean (min .. max)"
    )
    for name, row in rows.items():
        gain = "" if name == chosen else percent(row["difference"], row["ci95"])
        low, mean, high = row["scale"]
        scale = f"{mean:.3g}" if low == high else f"{mean:.3g} ({low:.3g} .. {high:.3g})"
        accuracy = percent(row["b"]["accuracy"], row["b"]["ci95"])
        others = f"{row['b']['nll']:.3f}", f"{100 * row['b']['ece']:.1f}"
        table.add_row(name, accuracy, gain, *others, scale)
    notes = [
        verdict(rows, chosen),
        f"{title}. Intervals: 95 % over tasks; differences are paired, task by task.",
        f"Conv-4, cosine. Plots: {report['plots']}; a page with the worst tasks: "
        f"{report['report']}. {time.monotonic() - began:.0f} s.",
    ]
    reply(args, report, [table, *notes])


def plan() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name of each run, its config, and what is changed in it."""
    for alpha in GRID:
        yield f"fixed {alpha:g}", "pn", {"scaler": "fixed", "scaler_options": {"alpha": alpha}}
    for name, file in LEARNED.items():
        yield name, file, {}


def verdict(rows: dict[str, Any], chosen: str) -> str:
    """Say how the learned scales compare with the best of the grid."""
    behind = [name for name in LEARNED if rows[name]["difference"] < -0.01]
    text = f"Best of the grid on the validation classes: {chosen}. "
    if behind:
        return f"{text}More than a point behind it: {', '.join(behind)}."
    return f"{text}The learned scales are within a point of it or better, without a grid."


def train_or_open(path: Path, config: TrainConfig, dataset: Dataset) -> Run:
    """Return the finished run at a path; create or resume it if necessary."""
    run = Run.open(path) if path.exists() else Run.create(path, config, dataset)
    if run.config.hash != config.hash:
        raise ValueError(
            f"{path} was made with other settings. Remove it, or choose another folder: "
            "--out FOLDER."
        )
    if run.result is None:
        try:
            train_with_progress(path, config)
        except Interrupted as stopped:
            if stopped.status <= 128:  # it was no signal
                raise
            raise Interrupted(
                f"Stopped while it trained {path}, which is saved. Repeat the command to continue.",
                stopped.status,
            ) from stopped
    return run


def final_scale(run: Run) -> tuple[float, float, float]:
    """Smallest, mean and largest entry of the scale of the best model, as it is tested."""
    best = (run.result or {})["best_step"]
    rows = read_metrics(run.path, until=best)
    if not rows:
        raise ValueError(f"{run.path} has no metrics. Remove it, and run the demo again.")
    row, scale = rows[-1], (run.result or {})["scale"]
    factor = scale["relearned"] / scale["trained"] if "relearned" in scale else 1.0
    return factor * row["scale_min"], factor * row["scale_mean"], factor * row["scale_max"]
