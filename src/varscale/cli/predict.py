"""`varscale predict`: classify texts, pictures or embeddings, with probabilities, as CSV."""

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from varscale.cli.fit import EMBEDDER, SOURCE
from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.cli.progress import Bar
from varscale.items.answers import AnswerFile, Form, Tally, answer_batch, answer_parts, to_csv
from varscale.items.source import Columns, Items, open_items
from varscale.items.tables import TABLES

CHUNK = 1 << 22
"""Probabilities to hold in memory at once."""
LARGEST_BATCH = 4096
"""Items of a batch of embeddings, at most."""
TEXTS = 512
"""Items of a batch that has to be embedded, at most."""


@command(
    "Classify texts, pictures or embeddings with a fitted classifier. Keeps the columns of a table "
    "and adds label, probability and unknown.",
    "varscale predict model.safetensors new.csv --reject 0.1 --out answers.csv",
    option("model", "file that varscale fit or varscale export wrote"),
    option("source", "as for varscale fit; or a single text, or a single picture"),
    *SOURCE,
    *EMBEDDER,
    option(
        "--reject",
        "share of items of known classes that may be called unknown, such as 0.1, the default if "
        "the prior was learned on enough classes",
        float,
    ),
    option("--top", "number of classes to name for each item, likeliest first", default=1),
    option("--sets ERROR", "add all possible classes; the true one may be missing so often", float),
    option("--out FILE", "CSV file to write, which an interrupted job continues; default: stdout"),
)
def run(args: Namespace) -> None:
    """Classify, and write one line per item."""
    out = None if args.out is None else Path(args.out)
    for given in (args.model, args.source):
        if out and out.exists() and _exists(given) and out.samefile(given):
            raise ValueError(f"Expected a file to write that is not read, got {given}.")
    if out and not out.parent.is_dir():
        raise ValueError(f"Expected a folder at {out.parent} to write {args.out} into.")
    model = load(args)
    n_classes = len(model.classes)
    if not 1 <= args.top <= n_classes:
        raise ValueError(
            f"Expected --top from 1 to {n_classes}, the number of classes, got {args.top}."
        )
    items = open_for(model, args)
    form = Form(tuple(items.columns), args.top, args.sets is not None)
    limit = LARGEST_BATCH if items.kind == "embedding" else TEXTS
    size = max(1, min(limit, CHUNK // n_classes))
    report = {"model": args.model, "reject": model.reject}
    if out is None:
        _print(args, model, items, form, size, report)
        return
    file = AnswerFile(out, _work(args, form, size))
    if file.resumed:
        sys.stderr.write(f"{file.done:,} answers are there already; going on.\n")
    else:
        file.write(to_csv([], form.header()))
    with Bar("predict") as bar:
        for part in answer_parts(model, items, form, size, file.done):
            file.add(part)
            bar(file.done, items.total)
    file.finish()
    _warn(file.tally)
    reply(args, {**report, **_counts(file.tally), "out": args.out}, _said(out, file.tally, model))


def _print(
    args: Namespace, model: Any, items: Items, form: Form, size: int, report: dict[str, Any]
) -> None:
    """Print answers to stdout."""
    rows: list[dict[str, Any]] = []
    tally = Tally()
    for batch in items.batches(size):
        some, counted = answer_batch(model, batch, form)
        rows += some
        tally += counted
    _warn(tally)
    text = to_csv(rows, form.header()).removesuffix("\n")
    reply(args, {**report, **_counts(tally), "answers": rows}, text)


def load(args: Namespace) -> Any:
    """The model of a file, set up to answer as the options say."""
    from varscale.items.model import REJECT, load_model

    model = load_model(Path(args.model), embedder=args.embedder, download=args.download)
    model.reject, model.error, model.skip_bad = args.reject, args.sets, args.skip_bad
    if model.reject is None and model.can_reject(REJECT):
        model.reject = REJECT
    return model


def open_for(model: Any, args: Namespace) -> Items:
    """Open the items that a model is to answer, by the columns that it was fitted to."""
    fitted = model.columns
    given = Columns(args.text, args.image, args.embedding, args.label)
    is_table = Path(args.source).suffix.lower() in TABLES
    if is_table and not any((given.text, given.image, given.embedding)):
        given = replace(fitted, label=args.label)
    items = open_items(args.source, given, split=args.split, label=fitted.label)
    if model.takes not in (items.kind, None):
        raise ValueError(
            f"Expected {model.takes}s, which {args.model} was fitted to, got {items.kind}s: "
            f"{args.source}."
        )
    return items


def _work(args: Namespace, form: Form, size: int) -> list[object]:
    """What an unfinished file of answers must agree in, to be continued."""
    paths = [Path(given) for given in (args.model, args.source) if _exists(given)]
    stamps = [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    options = {k: v for k, v in args.as_dict().items() if k not in ("json", "scheduler")}
    return [options, stamps, form.header(), size]


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def _warn(tally: Tally) -> None:
    if tally.own:
        warnings.warn(
            f"{tally.own:,} of {tally.items:,} items are examples that the model was fitted to: "
            "their answers do not tell how good it is. varscale check does.",
            stacklevel=1,
        )


def _counts(tally: Tally) -> dict[str, Any]:
    counts: dict[str, Any] = {"items": tally.items, "unknown": tally.unknown, "bad": tally.bad}
    if tally.labelled:
        counts["accuracy"] = tally.right / tally.labelled
    return counts


def _said(out: Path, tally: Tally, model: Any) -> str:
    said = f"{out}: {tally.items:,} answers"
    if model.reject is not None:
        said += f", {tally.unknown:,} of them unknown"
    if tally.bad:
        said += f", {tally.bad:,} items could not be read"
    if tally.labelled:
        said += f", accuracy {100 * tally.right / tally.labelled:.1f} % before rejecting"
    return f"{said}."
