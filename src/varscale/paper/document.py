"""All results on one page: reported beside ours, figures, claims; as HTML, and as Markdown."""

from functools import partial
from pathlib import Path

from varscale.paper.claims import judge_all
from varscale.paper.evidence import Everything
from varscale.paper.figures import FIGURES
from varscale.paper.grid import TITLES, cells, entries, format_figure
from varscale.paper.results import FLOAT32, Results, label
from varscale.paper.sizes import SIZES
from varscale.paper.tables import Line, gains
from varscale.paper.tables import table as lines_of
from varscale.report.html import paragraph, render, table

HEAD = (
    "row", "column", "reported %", "ours %", "difference", "gain reported", "gain ours",
    "NLL", "ECE %", "scale", "runs",
)  # fmt: skip
COVERED = ("", "size", "cells run")
INTRO = (
    "Reported is the paper's figure, at 84x84 on all of miniImageNet; ours is what the rows in "
    "`results/` say, at the size and on the data that the heading names. The small size is far "
    "below the paper's accuracies, so compare gains: over the first row of the same column, ours "
    "paired by seed. Intervals of ours are 95 % by Student's t over seeds. Scale is the mean of "
    "the learned scale, over its entries."
)
NOTE = (
    "Judged at the small size and on frozen embeddings, not at the paper's size. Differences are "
    "points of accuracy on the same test tasks; one seed, whose interval is over tasks, decides "
    "nothing. A claim of which a part was not run is undecided."
)


def introduction(folder: Path) -> str:
    """What to know of the tables, and of the data if the folder has a README about them."""
    about = folder / "README.md"
    return INTRO + (f" {' '.join(about.read_text().split())}" if about.is_file() else "")


TRAINED = ("table1", "table2", "table3", "table4", "table5", "table6", "baselines", "omniglot")
SHOWN = {"small": TRAINED, "frozen": ("fig3", "table5", "table6"), "paper": TRAINED}
"""What is shown as a table, by size; the other figures repeat cells of tables."""


def tables(results: Results) -> dict[str, tuple[list[Line], str]]:
    """Lines and caption of each table of which a quarter or more was run, by what it was run on.

    At the paper's size, where a run takes hours, one is enough.
    """
    found = {}
    for size, ids in SHOWN.items():
        rows = results.rows(size)
        for kind in dict.fromkeys((row.dataset, row.precision) for row in rows):
            here = [row for row in rows if (row.dataset, row.precision) == kind]
            for id in ids:
                lines = [line for line in lines_of(entries(id), here) if line.entry.cells]
                done = [line for line in lines if line.rows]
                if done and (size == "paper" or len(done) >= len(lines) / 4):
                    left = f" {len(done)} of {len(lines)} cells." if len(done) < len(lines) else ""
                    name = f"{TITLES[id]} ({size}, {label(*kind)})"
                    found[name] = done, caption(id, done) + left
    return found


def caption(id: str, lines: list[Line]) -> str:
    """What has to stand beside the figures of a table."""
    rows = list({row.key: row for line in lines for row in line.rows}.values())
    one = rows[0]
    command = f"varscale reproduce {id} --size {one.size}"
    if one.size == "frozen":
        command += f" --dataset {one.dataset}"
    if one.precision != FLOAT32:
        command += f" --precision {one.precision}"
    steps, seeds = _span([row.steps for row in rows]), _span([row.seed for row in rows])
    return (
        f"`{command}` ({SIZES[one.size].summary}): {one.dataset} ({one.dataset_hash[:12]}), "
        f"items {one.item}, {steps} steps, {one.episodes:,} shared test episodes, {one.n_way}-way, "
        f"{one.n_query} queries a class, seeds {seeds}. "
        f"{sum(row.minutes for row in rows) / 60:.1f} hours of one thread."
    )


def format_lines(lines: list[Line]) -> list[tuple[str, ...]]:
    """Write the cells of a table, to read."""
    return [
        (
            line.entry.row,
            line.entry.column,
            line.entry.published,
            format_figure(line.ours, line.half),
            "" if line.difference is None else f"{line.difference:+.2f}",
            "" if gain.reported is None else f"{gain.reported:+.2f}",
            format_figure(gain.ours, gain.half),
            f"{_mean([row.nll for row in line.rows]):.3f}",
            f"{_mean([100 * row.ece for row in line.rows]):.1f}",
            f"{_mean([row.scale_mean for row in line.rows]):.3g}",
            str(len(line.rows)),
        )
        for line, gain in zip(lines, gains(lines), strict=True)
    ]


def sections(folder: Path) -> list[tuple[str, str]]:
    """Sections of an HTML page about a folder of results."""
    everything = Everything.read(folder)
    claims = []
    for v in judge_all(everything):
        caveat = [f"({v.caveat})"] if v.caveat else []
        text = "\n".join([v.statement, *v.figures, *caveat])
        claims.append((v.id, v.answer, text, str(v.runs or "")))
    judged = table(("", "verdict", "claim", "runs"), claims) + paragraph(NOTE, "note")
    parts = [("What this is", paragraph(introduction(folder))), ("Claims", judged)]
    for name, (lines, note) in tables(Results(folder)).items():
        body = table(HEAD, format_lines(lines), numbers=range(2, len(HEAD)))
        parts.append((name, body + paragraph(note, "note")))
    places = {"Small size, miniimagenet32": everything.small}
    places |= {f"Frozen, {name}": evidence for name, evidence in everything.frozen.items()}
    for title, draw in FIGURES.items():
        body = ""
        for where, evidence in places.items():
            if svg := render(partial(draw, evidence=evidence)):
                body += svg + paragraph(f"{where}. {draw.__doc__}", "note")
        if body:
            parts.append((title, body))
    parts.append(("What was run", table(COVERED, covered(Results(folder)), numbers=[2])))
    return parts


def covered(results: Results) -> list[tuple[str, ...]]:
    """How many of the cells of each table were run, at each size but the paper's."""
    found: list[tuple[str, ...]] = []
    for size, ids in SHOWN.items():
        done = {row.cell for row in results.rows(size)}
        for id in ids:
            names = cells(entries(id))
            if size != "paper" or done.intersection(names):
                found.append((TITLES[id], size, f"{len(done.intersection(names))} of {len(names)}"))
    return found


def markdown(folder: Path) -> str:
    """The same as a page of Markdown, without the figures."""
    out = [
        "# The paper, re-run",
        "",
        "Generated by `varscale report results --markdown docs/reproduce.md`; do not edit.",
        "The same with figures, as a page for a browser: `varscale report results`.",
        "",
        introduction(folder),
        "",
        "## Claims",
        "",
    ]
    claims: list[tuple[str, ...]] = [
        (v.id, v.statement, v.answer, "; ".join(v.figures), v.caveat)
        for v in judge_all(Everything.read(folder))
    ]
    out += _rows(("", "claim", "verdict", "by", "caveat"), claims)
    out += ["", NOTE]
    for name, (lines, note) in tables(Results(folder)).items():
        out += ["", f"## {name}", "", *_rows(HEAD, format_lines(lines)), "", note]
    out += ["", "## What was run", "", *_rows(COVERED, covered(Results(folder)))]
    return "\n".join(out) + "\n"


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _span(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
