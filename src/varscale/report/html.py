"""Self-contained HTML pages: no network, no script, light and dark."""

import base64
import io
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from varscale.core.files import check_target, marked

BEGINNING = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="generator" content="varscale">'
)
"""How a page begins that we wrote, and may replace."""
GREY = "#767676"
"""Readable on white and on black, because a plot is drawn once for both."""

STYLE = """
:root { color-scheme: light dark; --line: #d0d0d0; --soft: #f4f4f4; --good: #087f4d;
  --bad: #b3261e; --open: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --line: #444; --soft: #222; --good: #5fd6a2;
  --bad: #ff9c92; --open: #f0c05a; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 70rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
.words td { overflow-wrap: anywhere; min-width: 5rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.holds { color: var(--good); font-weight: 600; } .fails { color: var(--bad); font-weight: 600; }
.undecided { color: var(--open); font-weight: 600; }
.note { font-size: .85rem; opacity: .8; }
code { background: var(--soft); padding: .1rem .3rem; border-radius: 3px; font-size: .85em;
  overflow-wrap: anywhere; }
svg, img { max-width: 100%; height: auto; } img.pixels { image-rendering: pixelated; }
nav a { margin-right: 1rem; }
@media (max-width: 40rem) { .scroll > svg { max-width: none; width: 40rem; } }
"""


def check_page(path: Path, reads: Iterable[str | None] = (), *, makes_folder: bool = False) -> None:
    """Raise ValueError if a page cannot be written, or would replace another file."""
    check_target(path, "a page", marked(BEGINNING.encode()), reads, makes_folder=makes_folder)


def page(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """Build a complete page of sections, each a heading and a body in HTML."""
    links = "".join(
        f'<a href="#s{number}">{escape(name)}</a> ' for number, (name, _) in enumerate(sections)
    )
    body = "".join(
        f'<section id="s{number}"><h2>{escape(name)}</h2>{content}</section>\n'
        for number, (name, content) in enumerate(sections)
    )
    text = (
        f'{BEGINNING}<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1><nav>{links}</nav>\n{body}</body></html>\n"
    )
    return text.encode(errors="replace").decode()  # UTF-8 has no lone surrogates


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
) -> str:
    """Build a table of text cells; the columns in `numbers` are aligned right.

    In a cell of several lines the first line is its heading.
    """

    def line(tag: str, cells: Sequence[str]) -> str:
        shown = (
            f"<{tag}{' class=number' if n in numbers else ''}>{_cell(cell)}</{tag}>"
            for n, cell in enumerate(cells)
        )
        return f"<tr>{''.join(shown)}</tr>"

    lines = [line("th", head), *(line("td", row) for row in rows)]
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'


def _cell(text: str) -> str:
    if text in ("holds", "fails", "undecided"):
        return f'<span class="{text}">{text}</span>'
    first, *rest = escape(text).split("\n")
    return "<br>".join([f"<strong>{first}</strong>", *rest]) if rest else first


def paragraph(text: str, kind: str = "") -> str:
    """Build a paragraph of plain text; text between backticks becomes code."""
    shown = re.sub(r"`(.*?)`", r"<code>\1</code>", escape(text))
    return f"<p{f' class={kind}' if kind else ''}>{shown}</p>"


def render(draw: Callable[[Any], object], *, width: float = 9.0, height: float = 3.4) -> str:
    """Render what a function draws on a matplotlib figure as SVG; empty if it returns `False`."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return paragraph("A plot is left out: it needs matplotlib, `pip install matplotlib`.")

    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: Any = dict.fromkeys(colours, GREY)
    settings |= {"axes.facecolor": "none", "legend.framealpha": 0.0, "svg.hashsalt": "varscale"}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
        if draw(figure) is False:
            return ""
        buffer = io.StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=metadata)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    return f'<div class="scroll">{svg}</div>' if width > 6 else svg  # phones scroll


def picture(png: bytes, alt: str) -> str:
    """Embed a PNG in the page."""
    data = base64.b64encode(png).decode()
    return f'<img class="pixels" alt="{escape(alt)}" src="data:image/png;base64,{data}">'
