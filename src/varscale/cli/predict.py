"""`varscale predict`: classify embeddings or images, with probabilities, as CSV or JSON."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from jsonargparse import Namespace

from varscale.classifier import FewShotClassifier
from varscale.cli.fit import SOURCE, read_source
from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.core.files import write_whole

CHUNK = 1 << 22
"""Probabilities to hold in memory at once."""


@command(
    "Classify embeddings, or images that a run embeds, with a fitted classifier.",
    "varscale predict intents.safetensors queries.npz --reject 0.1 --out answers.csv",
    option("model", "file that varscale fit wrote"),
    option("source", "file of embeddings (npz, npy, safetensors); with --run, a folder of images"),
    *SOURCE,
    option(
        "--reject",
        "share of queries of known classes that may be called unknown, such as 0.1",
        float,
    ),
    option("--top", "number of classes to name for each item, likeliest first", default=1),
    option("--out FILE", "CSV file to write; by default stdout"),
)
def run(args: Namespace) -> None:
    """Classify, and write one line per item."""
    for given in (args.model, args.source):
        if args.out and Path(args.out).exists() and Path(args.out).samefile(given):
            raise ValueError(f"Expected a file to write that is not read, got {given}.")
    if args.out and not Path(args.out).parent.is_dir():
        raise ValueError(f"Expected a folder at {Path(args.out).parent} to write {args.out} into.")
    classifier = FewShotClassifier.load(args.model)
    if not 1 <= args.top <= len(classifier.classes_):
        raise ValueError(
            f"Expected --top from 1 to {len(classifier.classes_)}, the number of classes, got "
            f"{args.top}."
        )
    items = read_source(args)
    answers = _answers(classifier, items.embeddings, args.reject, args.top)
    rows = [{"item": name, **answer} for name, answer in zip(items.names, answers, strict=True)]
    report = {"model": args.model, "reject": args.reject, "items": len(rows)}
    if items.classes is not None:
        both = zip(rows, items.classes, strict=True)
        report["accuracy"] = float(np.mean([str(row["class"]) == str(c) for row, c in both]))
    if args.out is None:
        reply(args, {**report, "answers": rows}, _csv(rows).removesuffix("\n"))
        return
    write_whole(Path(args.out), _csv(rows).encode())
    said = f"{args.out}: {len(rows):,} answers"
    if args.reject is not None:
        said += f", {sum(row['unknown'] for row in rows):,} of them unknown"
    if "accuracy" in report:
        said += f", accuracy {100 * report['accuracy']:.1f} % before rejecting"
    reply(args, {**report, "out": args.out}, f"{said}.")


def _answers(
    classifier: FewShotClassifier, embeddings: np.ndarray, reject: float | None, top: int
) -> list[dict[str, Any]]:
    """Likeliest class, its probability, whether unknown; then `class_2`, `probability_2`, ..."""
    classes = classifier.classes_.tolist()
    unknown = np.zeros(len(embeddings), dtype=bool)
    if reject is not None:
        unknown = classifier.is_unknown(embeddings, reject)
    answers: list[dict[str, Any]] = []
    size = max(1, CHUNK // len(classes))
    for start in range(0, len(embeddings), size):
        probability = classifier.predict_proba(embeddings[start : start + size])
        likeliest = probability.argmax(1)[:, None]
        if top > 1:
            likeliest = np.argsort(-probability, axis=1, kind="stable")[:, :top]
        for row, (first, *others) in zip(probability, likeliest, strict=True):
            answer = {"class": classes[first], "probability": round(float(row[first]), 6)}
            answer["unknown"] = bool(unknown[len(answers)])
            for place, k in enumerate(others, start=2):
                answer[f"class_{place}"] = classes[k]
                answer[f"probability_{place}"] = round(float(row[k]), 6)
            answers.append(answer)
    return answers


def _csv(rows: list[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    fields = rows[0] if rows else ("item", "class", "probability", "unknown")
    writer = csv.DictWriter(buffer, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "unknown": int(row["unknown"])} for row in rows)
    return buffer.getvalue()
