"""Plots of runs: learning curves, the scale during training, and reliability."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from varscale.core.files import write_whole
from varscale.evaluation import Evaluation
from varscale.runs import Run
from varscale.runs.logbook import read_metrics

Scored = Mapping[str, tuple[Run, Evaluation]]
"""Runs and their test scores, by the name to show."""

COLOURS = ("#5b6770", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Colours that colour-blind readers can tell apart, also in print (after Okabe and Ito)."""


def escape_dollars(name: str) -> str:
    """Escape dollar signs, which matplotlib would read as mathematics."""
    return name.replace("$", r"\$")


def overview(scored: Scored, out: Path, *, title: str) -> None:
    """Plot learning curves, scale and reliability of some runs side by side, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    figure.suptitle(title, fontsize=10)
    curves, scale, reliability = figure.subplots(1, 3)
    plot_training(curves, scale, scored)
    plot_reliability(reliability, scored)
    reliability.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
    curves.set_title("Learning")
    scale.set_title("Scale: mean, and its range")
    reliability.set_title("Reliability (test)")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": "varscale"})
    write_whole(out, buffer.getvalue())


def plot_training(curves: Any, scale: Any, scored: Scored) -> None:
    """Plot the learning curves of runs, and their scales."""
    for (name, (run, _)), colour in zip(scored.items(), COLOURS * 9, strict=False):
        rows = read_metrics(run.path)
        learning_curve(curves, rows, escape_dollars(name), colour)
        scale_path(scale, rows, escape_dollars(name), colour)
    curves.set(xlabel="step", ylabel="validation accuracy %")
    scale.set(xlabel="step", ylabel="scale", yscale="log")
    curves.legend(fontsize=8)


def plot_reliability(axes: Any, scored: Scored) -> None:
    """Plot the reliability of runs."""
    for (name, (_, scores)), colour in zip(scored.items(), COLOURS * 9, strict=False):
        reliability_curve(axes, scores.bins.numpy(), escape_dollars(name), colour)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))


def learning_curve(axes: Any, rows: list[dict[str, Any]], name: str, colour: str) -> None:
    """Plot validation accuracy with its interval."""
    seen = [row for row in rows if "val_accuracy" in row]
    steps = [row["step"] for row in seen]
    accuracy = 100 * np.array([row["val_accuracy"] for row in seen])
    half = 100 * np.array([row["val_ci95"] for row in seen])
    axes.plot(steps, accuracy, color=colour, label=name)
    axes.fill_between(
        steps, accuracy - half, accuracy + half, color=colour, alpha=0.15, linewidth=0
    )


def scale_path(axes: Any, rows: list[dict[str, Any]], name: str, colour: str) -> None:
    """Plot the mean of the scale; a band spans its entries and two posterior deviations."""
    rows = [row for row in rows if "scale_mean" in row]  # co-training steps may have none
    steps = [row["step"] for row in rows]
    low = np.array([row["scale_min"] - 2 * row["scale_spread"] for row in rows])
    high = np.array([row["scale_max"] + 2 * row["scale_spread"] for row in rows])
    axes.plot(steps, [row["scale_mean"] for row in rows], color=colour, label=name)
    axes.fill_between(steps, low.clip(min=0.1), high, color=colour, alpha=0.15, linewidth=0)


def reliability_curve(axes: Any, bins: np.ndarray, name: str, colour: str) -> None:
    """Plot accuracy against confidence, in the bins of the calibration error."""
    count, confidence, hits = bins
    seen = count >= 20  # a bin of a few predictions says nothing
    axes.plot(
        confidence[seen] / count[seen], hits[seen] / count[seen], "o-", color=colour,
        markersize=3, label=name,
    )  # fmt: skip
