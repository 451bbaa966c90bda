"""`varscale predict`: classify texts, pictures or embeddings, with probabilities, as CSV."""

import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from varscale.cli.output import reply
from varscale.cli.parser import command, option, take
from varscale.cli.progress import Bar
from varscale.cli.source import EMBEDDER, SOURCE
from varscale.core.files import check_target
from varscale.items.answer_file import AnswerFile, has_answers
from varscale.items.answers import Tally, answer_batch, to_csv
from varscale.items.columns import Columns
from varscale.items.job import Job, OpenJob
from varscale.items.spread import answer_spread
from varscale.items.tables import TABLES


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
    option(
        "--sets ERROR",
        "add the classes that may be true; the true one is missing for a share ERROR of the items",
        float,
    ),
    option("--out FILE", "CSV file to write, which an interrupted job continues; default: stdout"),
    option("--scheduler ADDRESS", "Dask scheduler whose workers share the work: tcp://host:port"),
)
def run(args: Namespace) -> None:
    """Classify, and write one line per item."""
    out = None if args.out is None else Path(args.out)
    if out and out.suffix.lower() in TABLES and out.suffix.lower() != ".csv":
        raise ValueError(f"Expected the name of a CSV file to write, got {args.out}.")
    if out:
        check_target(out, "answers", has_answers, reads=(args.model, args.source))
    args["columns"] = take(args, Columns)
    job = take(args, Job)
    opened = job.open()
    report = {"model": args.model, "reject": opened.model.reject}
    if out is None:
        if args.scheduler is not None:
            raise ValueError("Expected a file to write the answers of a cluster to: --out FILE.")
        _print(args, opened, report)
        return
    total = opened.items.total
    with AnswerFile(out, _work(job, opened)) as file, Bar("predict") as bar:
        if file.resumed:
            sys.stderr.write(f"{file.done:,} answers are there already; going on.\n")
        else:
            file.write(to_csv([], opened.form.header()))
        parts = opened.parts(file.done)
        if args.scheduler is not None:
            parts = answer_spread(job, args.scheduler, opened.size, file.done, total)
        for part in parts:
            file.add(part)
            bar(file.done, total)
        file.finish()
    _warn(file.tally)
    said = _said(out, file.tally, opened.model.reject)
    reply(args, {**report, **_counts(file.tally), "out": args.out}, said)


def _print(args: Namespace, opened: OpenJob, report: dict[str, Any]) -> None:
    """Print answers to stdout."""
    rows: list[dict[str, Any]] = []
    tally = Tally()
    for batch in opened.items.batches(opened.size):
        some, counted = answer_batch(opened.model, batch, opened.form)
        rows += some
        tally += counted
    _warn(tally)
    text = to_csv(rows, opened.form.header()).removesuffix("\n")
    reply(args, {**report, **_counts(tally), "answers": rows}, text)


def _work(job: Job, opened: OpenJob) -> list[object]:
    """What an unfinished file of answers must agree in, to be continued."""
    return [asdict(job), job.stamps(), opened.form.header(), opened.size]


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


def _said(out: Path, tally: Tally, reject: float | None) -> str:
    said = f"{out}: {tally.items:,} answers"
    if reject is not None:
        said += f", {tally.unknown:,} of them unknown"
    if tally.bad:
        said += f", {tally.bad:,} items could not be read"
    if tally.labelled:
        said += f", accuracy {100 * tally.right / tally.labelled:.1f} % before rejecting"
    return f"{said}."
