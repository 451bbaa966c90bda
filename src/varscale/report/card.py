"""A model card: what a fitted classifier is, what it was fitted to, and where it ends."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import torch

from varscale.core.files import check_target, marked, write_whole
from varscale.items.columns import PLURALS
from varscale.items.embedders.base import taken_by
from varscale.items.model import ItemModel
from varscale.report.check import in_per_cent
from varscale.report.findings import describe_examples
from varscale.version import __version__

MARK = "---\n# Written by varscale, which replaces this file; it never replaces one of yours.\n"
"""How a card begins. No other file is overwritten."""
MOST_CLASSES = 500
"""Classes that a card lists, at most."""


def check_card(path: Path) -> None:
    """Raise ValueError if a card cannot be written: no folder, or a file that is not a card."""
    check_target(path, "a card", marked(MARK.encode()))


def write_card(
    path: Path,
    model: ItemModel,
    file: Path,
    *,
    embedder: Mapping[str, str] | None = None,
    reject: float | None = None,
) -> None:
    """Write the card of a fitted classifier; never over a file that varscale did not write.

    Args:
        path: File to write, such as README.md.
        model: The classifier.
        file: File of the classifier: what varscale fit, or varscale export, wrote.
        embedder: `spec` and `identity` of its embedder; by default those of the model's.
        reject: Share of known items that an exported graph may call unknown.
    """
    check_card(path)
    write_whole(path, card(model, file.name, embedder=embedder, reject=reject).encode())


def card(
    model: ItemModel,
    name: str,
    *,
    embedder: Mapping[str, str] | None = None,
    reject: float | None = None,
) -> str:
    """The text of a card, in Markdown; see `write_card`."""
    if embedder is None and model.embedder is not None:
        embedder = {"spec": model.embedder.spec, "identity": model.embedder.identity}
    kind, is_graph = _kind(model, embedder), name.endswith(".onnx")
    classes, counts = model.classes, model.classifier.counts_
    task = {"text": "text-classification", "image": "image-classification"}.get(kind or "")
    head = ["library_name: varscale", *([f"pipeline_tag: {task}"] if task else [])]
    what = {"text": "new.csv", "image": "FOLDER", "embedding": "new.npz"}.get(kind or "", "new.csv")
    data = [
        [
            _escape(source["name"]),
            *(f"{source[k]:,}" for k in ("items", "unlabelled", "unreadable")),
        ]
        for source in model.sources
    ]
    listed = [[_escape(str(c)), f"{n:,}"] for c, n in zip(classes, counts.tolist(), strict=True)]
    more = f"\n\nand {len(classes) - MOST_CLASSES:,} more." if len(classes) > MOST_CLASSES else ""
    known = f"{len(classes):,} classes, from {int(counts.sum()):,} labelled examples"
    parts = {
        "Use": f"```\nvarscale predict {shlex.quote(_flatten(name))} {what} --out answers.csv\n```",
        "Data": _table(["file", "items", "unlabelled, left out", "unreadable, left out"], data)
        if data
        else "The file does not tell what data it was fitted to.",
        "Classes": _table(["class", "examples"], listed[:MOST_CLASSES]) + more,
        "Embedder": _embedder(model, embedder),
        "Figures": _table(["figure", "value"], figures(model, reject)),
        "Limits": "\n".join(f"- {limit}" for limit in _limits(model, kind, is_graph=is_graph)),
        "Licence": (
            "varscale does not know the licence of the embedder's weights, nor of the data. Look "
            "both up before you pass this model on."
        ),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in parts.items())
    return (
        f"{MARK}{chr(10).join(head)}\ntags: [few-shot, varscale]\n---\n\n# {_escape(name)}\n\n"
        f"A few-shot classifier of {PLURALS[kind]} into {known}, fitted by varscale "
        f"{__version__}.\nIt gives a probability for each class.\n\n{body}\n"
    )


def figures(model: ItemModel, reject: float | None = None) -> list[list[str]]:
    """Figures of a fitted classifier, each with its name: a line of the card's table."""
    classifier = model.classifier
    prior, counts = classifier.prior_, torch.from_numpy(classifier.counts_).clamp_min(1)
    found = [
        ["scale of these classes", f"{classifier.task_.alpha.item():.3g}"],
        ["prior", f"`{prior!r}`"],
    ]
    accuracy = describe_examples(classifier, more=None)["accuracy"]
    if accuracy is not None:
        text = f"{in_per_cent(accuracy)} of {accuracy['of']:,}, 95 % interval"
        found.insert(0, ["accuracy on examples left out", text])
    if prior.conformity is not None:
        least = prior.conformity.smallest_share(counts)
        found.append(["shares above which `--reject` works", f"{least:.3g}"])
    if reject is not None:
        found.append(["share of known items that may be called unknown", f"{reject:g}"])
    return found


def _kind(model: ItemModel, embedder: Mapping[str, str] | None) -> str | None:
    """What the items are; `None` if only the embedder could tell."""
    named = {kind: getattr(model.columns, kind) for kind in ("text", "image", "embedding")}
    found = next((kind for kind, column in named.items() if column is not None), None)
    if found is not None:
        return found
    if embedder is None:
        return "embedding"
    return taken_by(embedder["spec"]) if model.embedder is None else model.embedder.takes


def _embedder(model: ItemModel, embedder: Mapping[str, str] | None) -> str:
    dim = model.classifier.n_features_in_
    if embedder is None:
        return (
            f"None: it takes embeddings of {dim} numbers. It does not know which model made them."
        )
    return (
        f"{_escape(embedder['spec'])}, {dim} numbers for each item. SHA-256 of weights and "
        f"settings: {_escape(embedder['identity'][:16])}. No other embedder can take its place."
    )


def _limits(model: ItemModel, kind: str | None, *, is_graph: bool) -> list[str]:
    """What to know before one relies on the answers."""
    prior, counts = model.classifier.prior_, model.classifier.counts_
    limits = [
        "Nobody has measured it on new items, only on its own examples, left out. Label some that "
        "it has not seen: then `varscale predict` prints the accuracy.",
        "Probabilities are calibrated on average, for items like the examples and for classes "
        "like those that taught the prior. They say nothing about other items.",
    ]
    if not prior.n_classes:
        limits.append(
            "Its prior was learned on fewer than 10 classes, or was given as a number: "
            "probabilities are less certain than with a learned one."
        )
    if few := int((counts < 2).sum()):
        limits.append(
            f"{few:,} of {len(counts):,} classes have fewer than two examples. Their probabilities "
            "rest on the prior; a second example of each helps most."
        )
    if prior.conformity is None:
        limits.append("It cannot tell items of other classes: it gives one of its own to each.")
    else:
        limits.append(
            "How many items of other classes it calls unknown depends on the data; that it seldom "
            "calls known items so is all that it promises."
        )
    if is_graph:
        limits.append(
            "The file has no examples. It has the names of classes and columns, and numbers made "
            "of the examples."
        )
    else:
        beside = {"text": "the beginning of each text", "image": "the path of each picture"}
        limits.append(
            "Personal data: the file has the embedding and a hash of each example, and "
            f"{beside.get(kind or '', 'the row, name or beginning of each')}. Treat it as you "
            "treat the examples. The file that `varscale export` writes has none of these."
        )
    return limits


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escape(text: str) -> str:
    """Foreign text as Markdown that shows it: no line ends, code, bars, links, pictures, HTML."""
    return re.sub(r"[\\`|\[]", r"\\\g<0>", _flatten(text)).replace("<", "&lt;")


def _flatten(text: str) -> str:
    """Text on one line, without lone surrogates."""
    return " ".join(text.split()).encode(errors="replace").decode()
