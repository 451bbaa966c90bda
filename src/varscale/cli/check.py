"""`varscale check`: wrong labels, confused classes, what to label next, and what it would bring."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jsonargparse import Namespace
from rich.markup import escape

from varscale.cli.output import reply
from varscale.cli.parser import command, option, take
from varscale.cli.source import EMBEDDER, SOURCE
from varscale.core.files import write_whole
from varscale.items.collection import gather
from varscale.items.columns import Columns
from varscale.items.embedders import make_embedder
from varscale.items.model import ItemModel, load_model
from varscale.items.source import TableItems, open_items
from varscale.report.check import Display, check_sections, in_per_cent
from varscale.report.findings import describe_examples, describe_items
from varscale.report.html import check_page, page

if TYPE_CHECKING:
    from rich.table import Table

LINES = 10
"""Rows of a table in the terminal, at most."""


@command(
    "Check a fitted classifier by its own examples: how accurate it is, which labels look wrong, "
    "which classes are confused, what more examples would bring. Of unlabelled items it says which "
    "to label next; of labelled ones, which labels look wrong.",
    "varscale check tickets.safetensors tickets.csv --html check.html",
    option("model", "file that varscale fit wrote"),
    option("source ITEMS", "items, as for varscale fit", nargs="?"),
    *SOURCE,
    *EMBEDDER,
    option("--next", "number of items to label next", default=10),
    option("--more", "further examples of each class to tell the accuracy for", default=10),
    option("--html FILE", "page to write"),
)
def run(args: Namespace) -> None:
    """Check, and print or write what was found."""
    for name, least in (("next", 1), ("more", 0)):
        if args[name] < least:
            raise ValueError(f"Expected --{name} of at least {least}, got {args[name]}.")
    if args.html:
        check_page(Path(args.html), reads=(args.model, args.source))
    path, make = Path(args.model), None if args.source is None else make_embedder
    model = load_model(path, embedder=args.embedder, download=args.download, make=make)
    facts: dict[str, Any] = {"model": args.model}
    facts["examples"] = describe_examples(model.classifier, more=args.more)
    examples, items = Display("example", model.shown or None, _folder(model, path)), Display("item")
    if args.source is not None:
        found, items, rows = _look_at(args, model)
        examples = replace(examples, rows=rows)
        if found is not None:
            facts["items"] = found
    if args.html:
        title = f"Check of {Path(args.model).name}"
        write_whole(Path(args.html), page(title, check_sections(facts, examples, items)).encode())
    shown = _show(facts, examples, items)
    if args.html:
        shown.append(escape(f"\n{args.html}: the same as a page."))
    reply(args, facts, shown)


def _folder(model: ItemModel, path: Path) -> Path:
    """Where the pictures of a model's examples lie: beside its file, and nowhere else."""
    names = [Path(source["name"]).name for source in model.sources]
    places = [path.parent / name for name in names if name not in ("", "..")]
    return next((place for place in places if place.is_dir()), path.parent)


def _look_at(
    args: Namespace, model: ItemModel
) -> tuple[dict[str, Any] | None, Display, list[int | None]]:
    """Describe items: the unlabelled ones, or else the labelled ones that are new to the model.

    Returns:
        What was found, if there are such; how to show them; the rows of the model's own examples.
    """
    columns = take(args, Columns)
    opened = open_items(args.source, columns, split=args.split, fitted=model.columns)
    model.check_kind(opened, model=args.model, source=args.source)
    items = gather(opened)
    x, rows = items.embed(model.embedder, skip_bad=args.skip_bad)
    labels, own = items.labels[rows], set(model.keys)
    keys, chosen = items.keys(), labels == ""
    if not chosen.any():
        chosen = np.array([keys[row] not in own for row in rows])
    numbers = range(1, len(items) + 1) if isinstance(opened, TableItems) else range(0)
    first = dict(zip(reversed(keys), reversed(numbers), strict=False))
    examples = [first.get(key) for key in model.keys]
    if not chosen.any():  # all are examples: the others tell all that there is to tell
        return None, Display("item"), examples
    known = None if (labels[chosen] == "").all() else labels[chosen]
    found = describe_items(model.classifier, x[chosen], known, n_next=args.next)
    for line in (*found.get("next", ()), *found.get("suspicious", ())):
        line["item"] = int(rows[chosen][line["item"]])  # its row in the source
    source = Path(args.source)
    folder = source if source.is_dir() else source.parent
    return found, Display("item", items.shown, folder, numbers), examples


def _show(facts: dict[str, Any], examples: Display, items: Display) -> "list[Table | str]":
    """Sentences and tables for a terminal."""
    own, given = facts["examples"], facts.get("items")
    shown: list[Table | str] = [f"{own['classes']:,} classes, {own['examples']:,} examples."]
    if own["accuracy"] is None:
        shown.append(own["note"])
    else:
        shown.append(f"Accuracy on examples left out: {_accuracy(own)}.")
        if own["single"]:
            shown.append(f"Classes of a single example, not left out: {own['single']:,}.")
        if own["expected"]:
            shown += _expected(own["expected"])
        shown += _suspicious("example", own["suspicious"], examples)
        shown += _confused(own["confusions"])
    if given is None:
        return [*shown, "\nTo see what to label next: varscale check MODEL UNLABELLED."]
    if "next" in given:
        return [*shown, *_next(given["next"], items)]
    if given["accuracy"] is not None:
        shown.append(f"\nAccuracy on the items: {_accuracy(given)}.")
    if given["of_other_classes"]:
        shown.append(f"Items with labels that it does not know: {given['of_other_classes']:,}.")
    return [*shown, *_suspicious("item", given["suspicious"], items)]


def _accuracy(facts: dict[str, Any]) -> str:
    share = in_per_cent(facts["accuracy"])
    return f"{share}, a 95 % interval; probabilities predict {100 * facts['confidence']:.1f} %"


def _expected(told: list[dict[str, float]]) -> "list[Table | str]":
    rows = [[str(line["more"]), in_per_cent(line)] for line in told]
    return _table(
        "Accuracy to expect with more examples, and its 90 % interval",
        ["more of each class", ""],
        rows,
    )


def _suspicious(kind: str, found: list[dict[str, Any]], names: Display) -> "list[Table | str]":
    if not found:
        return [f"\nNo label of an {kind} is suspicious."]
    rows = [
        [_short(names.line(line[kind])), str(line["label"]), str(line["better"]),
         f"{100 * line['quality']:.1f} %"]
        for line in found
    ]  # fmt: skip
    head = [kind, "label", "fits better", "probability of the label"]
    title = f"Labels to look at: {len(found):,}, wrong or hard, where another class fits better"
    return _table(title, head, rows)


def _confused(found: list[dict[str, Any]]) -> "list[Table | str]":
    rows = [[str(c["first"]), str(c["second"]), f"{100 * c['rate']:.1f} %"] for c in found]
    return _table("Confused classes", ["class", "and class", "confused"], rows)


def _next(found: list[dict[str, Any]], items: Display) -> "list[Table | str]":
    rows = [
        [_short(items.line(line["item"])), str(line["class"]), f"{100 * line['probability']:.0f} %"]
        for line in found
    ]
    return _table("Label next", ["item", "current answer", "probability"], rows, most=len(rows))


def _table(
    title: str, head: list[str], rows: list[list[str]], most: int = LINES
) -> "list[Table | str]":
    if not rows:
        return []
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows[:most]:
        table.add_row(*(escape(_printable(cell)) for cell in row))
    left = len(rows) - most
    more = [f"... and {left:,} more: --json or --html."] if left > 0 else []
    return [f"\n{title}", table, *more]


def _printable(text: str) -> str:
    """Text on one line, without what a terminal obeys; the joiners of some scripts may stay."""
    shown = " ".join(text.split())
    return "".join(c if c.isprintable() or c in "\u200c\u200d" else "?" for c in shown)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
