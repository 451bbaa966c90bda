"""Sections of an HTML page about runs."""

import io
from html import escape
from typing import Any

import numpy as np
import torch
from PIL import Image

from varscale.core import Episode
from varscale.evaluation import Evaluation
from varscale.report.html import GREY, paragraph, picture, render, table
from varscale.report.plots import Scored, escape_dollars, plot_reliability, plot_training
from varscale.report.text import describe, percent
from varscale.runs import Run
from varscale.runs.logbook import read_metrics
from varscale.runs.scores import Test, facts, score, task_of
from varscale.runs.settling import describe_scale

WORST = 3
"""Number of test tasks to show of each run, those of lowest accuracy."""
SIDE, MOST = 40, 20
"""Pixels of an item in them, and number of queries to show of a class."""


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
        what = config.host, config.backbone, config.scaler or "no scaler"
        model = ", ".join(map(str, (*what, config.metric or "default metric")))
        accuracy = percent(figures["accuracy"], figures["ci95"])
        others = f"{figures['nll']:.3f}", f"{100 * figures['ece']:.1f}", f"{figures['brier']:.3f}"
        rows.append([name, model, _steps(run), str(config.seed), accuracy, *others])
    head = ["run", "what", "steps", "seed", "accuracy %", "NLL", "ECE %", "Brier"]
    notes = []
    for run, scores in scored.values():
        report = {"episodes": len(scores.accuracy), **facts(run, test)}
        notes.append(f"{describe(report)}; intervals are 95 % over tasks.")
    for name, (run, _) in scored.items():
        if scale := (run.result or {}).get("scale"):
            notes.append(f"{name}: {describe_scale(scale)}")
    lines = "".join(paragraph(note, "note") for note in dict.fromkeys(notes))
    return table(head, rows, numbers=range(2, 8)) + lines


def _curves(scored: Scored) -> str:
    def draw(figure: Any) -> None:
        curves, scale = figure.subplots(1, 2)
        plot_training(curves, scale, scored)

    return render(draw) + paragraph(
        "Left: validation accuracy with its 95 % interval over tasks. Right: mean of the scale; "
        "the band goes from its smallest to its largest entry, widened by two posterior standard "
        "deviations.",
        "note",
    )


def _reliability(scored: Scored) -> str:
    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 1)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
        plot_reliability(axes, scored)
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
        note = (
            f"Task {number:,}: {100 * scores.accuracy[number]:.0f} % right. Rows: "
            f"{', '.join(classes)}. Supports, then the queries assigned to that class; a bar marks "
            "a wrong one."
        )
        parts.append(paragraph(note, "note"))
        parts.append(picture(_sheet(episode, guess), f"task {number}"))
    return "".join(parts)


def _sheet(episode: Episode, guess: torch.Tensor) -> bytes:
    """Draw a row per class of one task: its supports, a gap, and the queries assigned to it."""
    assert episode.query_labels is not None
    labels, truth = episode.support_labels[0], episode.query_labels[0]
    shots = int(torch.bincount(labels).max())
    width = (shots + MOST) * (SIDE + 2) + SIDE // 2
    sheet = Image.new("RGBA", (width, episode.n_way * (SIDE + 4)), (0, 0, 0, 0))
    for k in range(episode.n_way):
        top = k * (SIDE + 4)
        chosen = (guess == k).nonzero().flatten()[:MOST]
        for place, image in enumerate(episode.support[0, labels == k]):
            sheet.paste(_thumbnail(image), (place * (SIDE + 2), top))
        for place, number in enumerate(chosen.tolist(), start=shots):
            left = place * (SIDE + 2) + SIDE // 2
            sheet.paste(_thumbnail(episode.query[0, number]), (left, top))
            if truth[number] != k:
                sheet.paste((213, 94, 0, 255), (left, top + SIDE, left + SIDE, top + SIDE + 3))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()


def _thumbnail(image: torch.Tensor) -> Image.Image:
    pixels = (255 * image.movedim(0, -1)).byte().numpy()
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    return Image.fromarray(pixels).resize((SIDE, SIDE))
