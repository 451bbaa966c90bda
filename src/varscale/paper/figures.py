"""The paper's figures, from the arrays beside the rows of results."""

from typing import Any

import numpy as np

from varscale.paper.evidence import Evidence, component_shares
from varscale.paper.grid import cell, cell_at
from varscale.paper.results import Arrays
from varscale.report.plots import COLOURS, reliability_curve


def learning_curves(canvas: Any, evidence: Evidence) -> bool:
    """One panel per shot; thin lines are seeds, the thick one is their mean."""
    drawn = False
    for axes, shot in zip(canvas.subplots(1, 2), (1, 5), strict=True):
        for (name, label), colour in zip((("pn", "PN"), ("dsvs", "D-SVS")), COLOURS, strict=False):
            runs = evidence.arrays(cell(name, "euclidean", shot=shot))
            drawn |= _curves(axes, runs, "val_step", "val_accuracy", label, colour, factor=100)
        axes.set(xlabel="step", ylabel="validation accuracy %", title=f"5-way {shot}-shot")
        _legend(axes)
    return drawn


def scale_paths(canvas: Any, evidence: Evidence) -> bool:
    """Mean of the scale over training, on frozen embeddings; logarithmic."""
    by_start, by_rate = canvas.subplots(1, 2)
    drawn = False
    for init, colour in zip((1, 10, 100, 1000), COLOURS, strict=False):
        runs = evidence.arrays(cell_at("fig3", "fig3a, rate 1e-3", f"start {init}"))
        drawn |= _curves(by_start, runs, "step", "scale_mean", f"start {init}", colour)
    for rate, colour in zip(("1.0e-4", "1.0e-3", "1.0e-2"), COLOURS, strict=False):
        runs = evidence.arrays(cell_at("fig3", "fig3b, start 100", f"rate {rate}"))
        drawn |= _curves(by_rate, runs, "step", "scale_mean", f"rate {float(rate):g}", colour)
    for axes in (by_start, by_rate):
        axes.set(xlabel="task", ylabel="mean of the scale", yscale="log")
        axes.locator_params(axis="x", nbins=5)
        _legend(axes)
    return drawn


def scale_density(canvas: Any, evidence: Evidence) -> bool:
    """Bands hold 50 % and 90 % of the entries, from a run of the first seed."""
    drawn = False
    for axes, shot in zip(canvas.subplots(1, 2), (1, 5), strict=True):
        for run in evidence.arrays(cell("dsvs", "euclidean", shot=shot))[:1]:
            for low, high, alpha in (("05", "95", 0.2), ("25", "75", 0.4)):
                axes.fill_between(
                    run["step"], run[f"scale_p{low}"], run[f"scale_p{high}"],
                    color=COLOURS[1], alpha=alpha, linewidth=0,
                )  # fmt: skip
            axes.plot(run["step"], run["scale_p50"], color=COLOURS[1])
            drawn = True
        axes.set(xlabel="step", ylabel="entries of the scale", title=f"5-way {shot}-shot")
    return drawn


def generated_scales(canvas: Any, evidence: Evidence) -> bool:
    """Entries of two test tasks; what each component of 50 tasks explains; a colour is a seed."""
    pairs, components = canvas.subplots(1, 2)
    cosine, euclidean = (cell("davs", metric, shot=5) for metric in ("cosine", "euclidean"))
    runs = evidence.arrays(cosine) or evidence.arrays(euclidean)
    for run, colour in zip(runs, COLOURS, strict=False):
        first, second = run["task_loc"][:2]
        pairs.plot(first, second, ".", color=colour, markersize=3)
        share = 100 * component_shares(run["task_loc"])[:10]
        components.plot(np.arange(1, len(share) + 1), share, "o-", color=colour, markersize=3)
    pairs.set(xlabel="scales of test task 1", ylabel="scales of test task 2")
    components.set(xlabel="component of log scales over tasks", ylabel="share of variance %")
    return bool(runs)


def reliability(canvas: Any, evidence: Evidence) -> bool:
    """Accuracy against confidence, seeds pooled; the dotted line is perfect calibration."""
    axes = canvas.subplots(1, 1)
    axes.plot([0, 1], [0, 1], color="#767676", linewidth=0.8, linestyle=":")
    drawn = False
    for name, colour in zip(("pn", "fixed10", "svs", "dsvs", "davs"), COLOURS, strict=False):
        runs = evidence.arrays(cell(name, "cosine", shot=1))
        if runs:
            reliability_curve(axes, np.sum([run["bins"] for run in runs], axis=0), name, colour)
            drawn = True
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    _legend(axes)
    return drawn


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _curves(
    axes: Any, runs: list[Arrays], x: str, y: str, label: str, colour: str, factor: float = 1.0
) -> bool:
    """Draw runs and their mean; say whether there were any."""
    if not runs:
        return False
    for run in runs:
        axes.plot(run[x], factor * run[y], color=colour, linewidth=0.6, alpha=0.5)
    mean = factor * np.mean([run[y] for run in runs], axis=0)
    axes.plot(runs[0][x], mean, color=colour, linewidth=1.8, label=label)
    return True


FIGURES = {
    "Learning curves: validation accuracy of PN and D-SVS, Euclidean": learning_curves,
    "The scale of SVS over training: by start (left), by rate (right)": scale_paths,
    "Entries of D-SVS's scale over training": scale_density,
    "Scales that D-AVS generates: two tasks (left), principal components (right)": generated_scales,
    "Reliability on test tasks, cosine, 5-way 1-shot": reliability,
}
"""By title; the caption is the docstring. Each returns whether there was anything to draw."""
