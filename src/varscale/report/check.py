"""Sections of an HTML page about a fitted classifier: labels, classes, what to label next."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from varscale.data.tree import MAX_PICTURE, PICTURES
from varscale.report.html import GREY, paragraph, picture, render

LINES = 50
"""Rows of a table, at most."""
SIDE = 96
"""Pixels of a side of a picture."""
BLUE = "#0072b2"


@dataclass(frozen=True)
class Display:
    """What to show of examples or items.

    Attributes:
        kind: What to call one: "example" or "item".
        texts: The text of each, or the path of its picture; `None` shows its number.
        folder: Where the pictures lie; no other is shown, because a model file may name any.
        rows: Row of each in the user's table, counted from 1, where it has one.
    """

    kind: str
    texts: Sequence[str] | None = None
    folder: Path | None = None
    rows: Sequence[int | None] = ()

    def text(self, place: int) -> str:
        """Words for one."""
        return f"{self.kind} {place}" if self.texts is None else str(self.texts[place])

    def line(self, place: int) -> str:
        """Its row if it has one, and words for it."""
        row = self.rows[place] if self.rows else None
        return self.text(place) if row is None else f"row {row}: {self.text(place)}"

    def html(self, place: int) -> str:
        """Its picture if it has one, else its text."""
        text = self.text(place)
        if self.texts is None or self.folder is None or not text.lower().endswith(PICTURES):
            return escape(self.line(place))
        try:
            return picture(_thumbnail(self.folder, text), text)
        except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
            return escape(text)


def _thumbnail(folder: Path, name: str) -> bytes:
    """Make a small PNG of a picture below a folder; raise ValueError if it lies elsewhere."""
    from PIL import Image

    from varscale.data.images import Record, decode

    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise ValueError(f"Expected a picture below {folder}, got {name}.")
    if path.stat().st_size > MAX_PICTURE:
        raise ValueError(f"Expected at most {MAX_PICTURE:,} bytes of a picture, got {name}.")
    buffer = io.BytesIO()
    Image.fromarray(decode(Record("", "", name, path.read_bytes, ""), SIDE, grey=False)).save(
        buffer, "png"
    )
    return buffer.getvalue()


def check_sections(
    facts: Mapping[str, Any], examples: Display, items: Display
) -> list[tuple[str, str]]:
    """Build the sections of a page from what `varscale check` found."""
    own, given = facts["examples"], facts.get("items")
    sections = [("Accuracy", _accuracy(own))]
    if own["expected"]:
        sections.append(("With more examples", _expected(own["expected"])))
    sections.append(("Labels to look at", _suspicious(own["suspicious"], "example", examples)))
    sections.append(("Confused classes", _confused(own["confusions"])))
    if given is not None and "next" in given:
        sections.append(("Label next", _next(given["next"], examples, items)))
    elif given is not None:
        body = _accuracy(given) + _suspicious(given["suspicious"], "item", items)
        sections.append(("Labelled items", body))
    return sections


def in_per_cent(found: Mapping[str, float]) -> str:
    """A share with its interval, in per cent."""
    low, high = 100 * found["low"], 100 * found["high"]
    return f"{100 * found['mean']:.1f} % ({low:.1f} to {high:.1f})"


def _accuracy(facts: Mapping[str, Any]) -> str:
    if facts["accuracy"] is None:
        return paragraph(facts.get("note", "None of the labels is a class of the classifier."))
    number = facts["accuracy"]["of"]
    text = (
        f"{in_per_cent(facts['accuracy'])} of {number:,} answers are right (95 % interval). "
        f"Its probabilities predict {100 * facts['confidence']:.1f} %."
    )
    shown = paragraph(text)
    if "single" in facts:
        note = "Each example is classified by a model that was fitted without it."
        if facts["single"]:
            note += f" Classes of a single example, which cannot be left out: {facts['single']:,}."
        shown += paragraph(note, "note")
    return shown + _reliability(facts["reliability"])


def _reliability(bins: Sequence[Mapping[str, float]]) -> str:
    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 1)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
        x, y = [b["confidence"] for b in bins], [b["accuracy"] for b in bins]
        axes.plot(x, y, "o-", color=BLUE, linewidth=1, markersize=4)
        axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.03), ylim=(-0.03, 1.03))

    note = (
        "Reliability, in groups of equal size: on the dotted line, answers are right as often as "
        "they claim."
    )
    return render(draw, width=4.2, height=3.4) + paragraph(note, "note")


def _expected(told: Sequence[Mapping[str, float]]) -> str:
    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 1)
        more = [line["more"] for line in told]
        low, high = ([100 * line[end] for line in told] for end in ("low", "high"))
        axes.fill_between(more, low, high, color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(more, [100 * line["mean"] for line in told], "o-", color=BLUE, markersize=4)
        axes.set(xlabel="further examples of each class", ylabel="accuracy %")

    rows = [[str(line["more"]), escape(in_per_cent(line))] for line in told]
    note = (
        "Estimated by classifying some of the examples by the others. The 90 % interval is of the "
        "accuracy on further items of these classes."
    )
    plot = render(draw, width=4.2, height=3.0) if len(told) > 1 else ""
    return plot + _rows(["more of each class", "accuracy"], rows) + paragraph(note, "note")


def _suspicious(found: Sequence[Mapping[str, Any]], kind: str, names: Display) -> str:
    if not found:
        return paragraph("None: every label is the class that fits best.")
    rows = [
        [
            names.html(line[kind]),
            _label(line["label"]),
            _label(line["better"]),
            f"{100 * line['quality']:.1f} %",
        ]
        for line in found[:LINES]
    ]
    text = "Labels that another class fits better, the most suspicious first."
    return paragraph(text) + _rows(
        [kind, "label", "fits better", "probability of the label"],
        rows,
        left=len(found) - len(rows),
    )


def _confused(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return paragraph("No two classes are confused in one case of a hundred.")
    rows = [[_label(c["first"]), _label(c["second"]), f"{100 * c['rate']:.1f} %"] for c in found]
    return _rows(["class", "and class", "confused"], rows)


def _next(found: Sequence[Mapping[str, Any]], examples: Display, items: Display) -> str:
    rows = [
        [
            items.html(line["item"]),
            f"{_label(line['class'])}<br>{100 * line['probability']:.0f} %",
            "<br>".join(examples.html(near["example"]) for near in line["nearest"]) or "its name",
        ]
        for line in found[:LINES]
    ]
    text = "Items that stand for what the classifier knows least, the most useful first."
    head = ["item", "current answer", "because of"]
    return paragraph(text) + _rows(head, rows, left=len(found) - len(rows))


def _label(name: object) -> str:
    """A class, which may break after an underscore, a slash or a dot."""
    return re.sub(r"([_/.])(?=\w)", r"\1<wbr>", escape(str(name)))


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Build a table of cells that are HTML already."""
    lines = ["".join(f"<th>{escape(name)}</th>" for name in head)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = paragraph(f"{left:,} more are in the output of --json.", "note") if left else ""
    return f'<div class="scroll"><table class="words">{body}</table></div>{more}'
