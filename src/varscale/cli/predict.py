"""`varscale predict`: classify embeddings or images, with probabilities, as CSV or JSON."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.core.files import write_whole
from varscale.items.embedded import read_embedded
from varscale.runs import load

if TYPE_CHECKING:
    from varscale.classifier.estimator import FewShotClassifier

CHUNK = 1 << 22
"""Probabilities to hold in memory at once."""


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Classify embeddings, or images that a run embeds, with a fitted classifier.",
        "varscale predict intents.safetensors queries.npz --reject 0.1 --out answers.csv",
    )
    parser.add_argument("model", type=str, help="file that varscale fit wrote")
    parser.add_argument(
        "source",
        type=str,
        help="file of embeddings (npz, npy, safetensors); with --run, a folder of images",
    )
    parser.add_argument(
        "--run", type=str | None, metavar="RUN", help="run directory whose model embeds images"
    )
    parser.add_argument(
        "--split", type=str | None, help="use only the classes of this split: train, val or test"
    )
    parser.add_argument(
        "--reject",
        type=float | None,
        help="share of queries of known classes that may be called unknown, such as 0.1",
    )
    parser.add_argument(
        "--top",
        type=int,
        default=1,
        help="number of classes to name for each item, likeliest first",
    )
    parser.add_argument(
        "--out", type=str | None, metavar="FILE", help="CSV file to write; by default stdout"
    )
    return parser


def run(args: Namespace) -> None:
    """Classify, and write one line per item."""
    from varscale.classifier.estimator import FewShotClassifier  # brings scikit-learn

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
    items = read_embedded(
        Path(args.source), model=load(args.run) if args.run else None, split=args.split
    )
    answers = _answers(classifier, items.embeddings, args.reject, args.top)
    rows = [{"item": name, **answer} for name, answer in zip(items.names, answers, strict=True)]
    if args.out is not None:
        write_whole(Path(args.out), _csv(rows).encode())
    right = {} if items.classes is None else {"accuracy": _accuracy(rows, items.classes)}
    if args.json:
        report = {"model": args.model, "reject": args.reject, "items": len(rows), **right}
        report |= {"out": args.out} if args.out else {"answers": rows}
        sys.stdout.write(json.dumps(report) + "\n")
    elif args.out is None:
        sys.stdout.write(_csv(rows))
    else:
        unknown = sum(row["unknown"] for row in rows)
        said = f", {unknown:,} of them unknown" if args.reject is not None else ""
        for name, value in right.items():
            said += f", {name} {100 * value:.1f} % before rejecting"
        sys.stdout.write(f"{args.out}: {len(rows):,} answers{said}.\n")


def _answers(
    classifier: "FewShotClassifier", embeddings: np.ndarray, reject: float | None, top: int
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


def _accuracy(rows: list[dict[str, Any]], classes: np.ndarray) -> float:
    """Share of items whose class is the one that the source gives."""
    return float(
        np.mean([str(row["class"]) == str(c) for row, c in zip(rows, classes, strict=True)])
    )


def _csv(rows: list[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    fields = rows[0] if rows else ("item", "class", "probability", "unknown")
    writer = csv.DictWriter(buffer, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "unknown": int(row["unknown"])} for row in rows)
    return buffer.getvalue()
