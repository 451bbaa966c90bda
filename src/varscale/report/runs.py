"""Sections of an HTML page about runs."""

import io
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import torch
from PIL import Image

from varscale.evaluation import Evaluation
from varscale.report.html import paragraph, picture, render, table
from varscale.report.plots import (
    COLOURS,
    escape_dollars,
    learning_curve,
    reliability_curve,
    scale_path,
)
from varscale.report.text import describe, percent
from varscale.runs import Run
from varscale.runs.logbook import read_metrics
from varscale.runs.scores import Test, facts, score, task_of

WORST = 3
"""Number of test tasks to show of each run, those of lowest accuracy."""


Scored = Mapping[str, tuple[Run, Evaluation]]
"""Runs and their test scores, by the name to show."""


def score_runs(runs: list[Run], test: Test) -> Scored:
    """Score runs on the tasks of a test, under names that tell them apart."""
    return {_name(run, runs): (run, score(run, test)) for run in runs}


def run_sections(scored: Scored, test: Test) -> list[tuple[str, str]]:
    """Build the sections about runs that were scored on the tasks of a test."""
    return [
        ("Runs", _table(scored, test)),
        ("Learning and scale", _curves(scored)),
        ("Reliability", _reliability(scored)),
        ("Confusion", "".join(_confusion(name, scores) for name, (_, scores) in scored.items())),
        ("Worst tasks", "".join(_worst(name, *pair, test) for name, pair in scored.items())),
    ]


def _name(run: Run, runs: list[Run]) -> str:
    """Shortest end of a run's path that tells it from the others."""
    parts = run.path.resolve().parts
    for length in range(1, len(parts)):
        ends = [other.path.resolve().parts[-length:] for other in runs]
        if ends.count(parts[-length:]) == 1:
            break
    return "/".join(parts[-length:])


def _steps(run: Run) -> str:
    if run.result is not None:
        return f"{run.result['steps']:,}"
    done = max((row["step"] for row in read_metrics(run.path)), default=0)
    return f"{done:,} of {run.config.steps:,}: not finished"


def _table(scored: Scored, test: Test) -> str:
    rows = []
    for name, (run, scores) in scored.items():
        figures, config = scores.summary(), run.config
        rows.append(
            [
                name,
                f"{config.host}, {config.backbone}, {config.scaler or 'no scaler'}, "
                f"{config.metric or 'default metric'}",
                _steps(run),
                str(config.seed),
                percent(figures["accuracy"], figures["ci95"]),
                f"{figures['nll']:.3f}",
                f"{100 * figures['ece']:.1f}",
                f"{figures['brier']:.3f}",
            ]
        )
    head = ["run", "what", "steps", "seed", "accuracy %", "NLL", "ECE %", "Brier"]
    notes = []
    for run, scores in scored.values():
        report = {"episodes": len(scores.accuracy), **facts(run, test, task_of(run, test)[1])}
        notes.append(f"{describe(report)}; intervals are 95 % over tasks.")
    lines = "".join(paragraph(note, "note") for note in dict.fromkeys(notes))
    return table(head, rows, numbers=range(2, 8)) + lines


def _curves(scored: Scored) -> str:
    def draw(figure: Any) -> None:
        curves, scale = figure.subplots(1, 2)
        for (name, (run, _)), colour in zip(scored.items(), COLOURS * 9, strict=False):
            rows = read_metrics(run.path)
            learning_curve(curves, rows, escape_dollars(name), colour)
            scale_path(scale, rows, escape_dollars(name), colour)
        curves.set(xlabel="step", ylabel="validation accuracy %")
        scale.set(xlabel="step", ylabel="scale", yscale="log")
        curves.legend(fontsize=8)

    return render(draw) + paragraph(
        "Left: validation accuracy with its 95 % interval over tasks. Right: mean of the scale; "
        "the band goes from its smallest to its largest entry, widened by two posterior standard "
        "deviations.",
        "note",
    )


def _reliability(scored: Scored) -> str:
    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 1)
        axes.plot([0, 1], [0, 1], color="#767676", linewidth=0.8, linestyle=":")
        for (name, (_, scores)), colour in zip(scored.items(), COLOURS * 9, strict=False):
            reliability_curve(axes, scores.bins.numpy(), escape_dollars(name), colour)
        axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
        axes.legend(fontsize=8)

    return render(draw, width=4.5, height=4)


def _confusion(name: str, scores: Evaluation) -> str:
    if scores.confusion is None or len(scores.class_names) > 100:
        return paragraph(f"{name}: too many classes to show.")
    rate = scores.confusion.double() / scores.confusion.sum(1, keepdim=True).clamp_min(1)

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 1)
        shown = axes.imshow(100 * rate.numpy(), cmap="viridis", vmin=0, vmax=100)
        if len(scores.class_names) <= 30:
            names = [escape_dollars(name) for name in scores.class_names]
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
            axes.set_yticks(range(len(names)), names, fontsize=6)
        axes.set(xlabel="predicted class", ylabel="true class", title=escape_dollars(name))
        figure.colorbar(shown, ax=axes, label="% of the class's queries")

    return render(draw, width=6, height=5)


def _worst(name: str, run: Run, scores: Evaluation, test: Test) -> str:
    split, sampler = task_of(run, test)
    if not split.dataset.is_images:
        return ""
    model = run.model()
    parts = [f"<h3>{escape(name)}</h3>"]
    for number in scores.accuracy.argsort()[:WORST].tolist():
        rows = sampler.batch(number, 1)
        with torch.inference_mode():
            episode = split.episode(rows)
            guess = model(episode, samples=test.samples, index=number, seed=test.seed)[0].argmax(-1)
        classes = [split.dataset.class_names[k] for k in rows.classes[0]]
        parts.append(
            paragraph(
                f"Task {number:,}: {100 * scores.accuracy[number]:.0f} % right. Rows: "
                f"{', '.join(classes)}. Supports, then the queries assigned to that class; a "
                "bar marks a wrong one.",
                "note",
            )
        )
        parts.append(picture(_sheet(episode.support[0], rows.support_labels[0], episode.query[0],
                                    rows.query_labels[0], guess), f"task {number}"))  # fmt: skip
    return "".join(parts)


def _sheet(
    support: torch.Tensor, labels: torch.Tensor, query: torch.Tensor, truth: torch.Tensor,
    guess: torch.Tensor, side: int = 40, most: int = 20,
) -> bytes:  # fmt: skip
    """Draw a row per class: its supports, a gap, and the queries assigned to it."""
    way = int(labels.max()) + 1
    shots = int(torch.bincount(labels).max())
    width = (shots + most) * (side + 2) + side // 2
    sheet = Image.new("RGBA", (width, way * (side + 4)), (0, 0, 0, 0))
    for k in range(way):
        top = k * (side + 4)
        chosen = (guess == k).nonzero().flatten()[:most]
        for place, image in enumerate(support[labels == k]):
            sheet.paste(_thumbnail(image, side), (place * (side + 2), top))
        for place, number in enumerate(chosen.tolist(), start=shots):
            left = place * (side + 2) + side // 2
            sheet.paste(_thumbnail(query[number], side), (left, top))
            if truth[number] != k:
                sheet.paste((213, 94, 0, 255), (left, top + side, left + side, top + side + 3))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()


def _thumbnail(image: torch.Tensor, side: int) -> Image.Image:
    pixels = (255 * image.movedim(0, -1)).byte().numpy()
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    return Image.fromarray(pixels).resize((side, side))
