"""`varscale fit`: fit a classifier to texts, pictures or embeddings, and store it in one file."""

import warnings
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from varscale.cli.output import reply
from varscale.cli.parser import command, option, take
from varscale.cli.progress import Bar
from varscale.cli.source import EMBEDDER, SOURCE
from varscale.core.files import check_target
from varscale.items.job import REJECT


@command(
    "Fit a few-shot classifier to texts, pictures or embeddings, and store it in one file.",
    "varscale fit tickets.csv model.safetensors --text question --label intent",
    option(
        "source",
        "table (csv, jsonl, parquet), folder of class folders, or embeddings (npz, npy, "
        "safetensors)",
    ),
    option("model", "file to write"),
    *SOURCE,
    *EMBEDDER,
    option("--names", "use the names of classes, as texts, as examples", action="store_true"),
    option("--prior FILE", "fitted classifier whose prior to use; or a number, the fixed scale"),
    option("--add FILE", "fitted classifier to add these items to; keeps its prior"),
    option("--seed", "seed of the fit", default=0),
    option("--card FILE", "write a model card, such as README.md"),
)
def run(args: Namespace) -> None:
    """Fit, store, and print what was learned."""
    from varscale.items.collection import gather
    from varscale.items.columns import Columns
    from varscale.items.model import load_model
    from varscale.items.source import open_items

    if args.prior is not None and args.add is not None:
        raise ValueError("--prior and --add are mutually exclusive.")
    model = Path(args.model)
    check_target(model, "a classifier", _is_ours, reads=(args.source, args.prior))
    if args.card is not None and Path(args.card).resolve() == model.resolve():
        raise ValueError(f"Expected a card in a file of its own, got {args.card}.")
    if args.card is not None:
        from varscale.report.card import check_card

        check_card(Path(args.card))
    fitted = None
    if args.add is not None:
        fitted = load_model(Path(args.add), embedder=args.embedder, download=args.download)
    known = None if fitted is None else fitted.columns
    opened = open_items(args.source, take(args, Columns), split=args.split, fitted=known)
    if fitted is not None:
        fitted.check_kind(opened, model=args.add, source=args.source)
    items = gather(opened)
    if conflicts := items.conflicts():
        more = f"; and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
        warnings.warn(
            f"Items with more than one label: {'; '.join(conflicts[:5])}{more}.",
            stacklevel=1,
        )
    fitted = fitted or _begin(args, items.kind)
    with Bar("embed") as bar:
        tell = bar if fitted.embedder is not None else (lambda done, total: None)
        skipped = fitted.add(
            items, learn=args.add is None, names=args.names, skip_bad=args.skip_bad, tell=tell
        )
    if args.add is None:
        fitted.columns = items.columns
    unlabelled, name = int((items.labels == "").sum()), Path(args.source).resolve().name
    counted = {"items": len(items), "unlabelled": unlabelled, "unreadable": skipped}
    fitted.sources.append({"name": name, **counted})
    fitted.save(model)
    if args.card is not None:
        from varscale.report.card import write_card

        write_card(Path(args.card), fitted, model)
    facts = _facts(model, fitted)
    left = [f"{unlabelled:,} unlabelled"] if unlabelled else []
    left += [f"{skipped:,} unreadable"] if skipped else []
    prior, told = fitted.classifier.prior_, f" ({' and '.join(left)} left out)" if left else ""
    shown = (
        f"{model}: {facts['classes']} classes, {facts['items']:,} items of {prior.dim} numbers"
        f"{told}.\n{_scale(fitted.classifier, args.prior or args.add)}\n"
        f"{_rejection(facts['smallest_reject'], args.add, args.prior)}"
        f"Next: varscale predict {model} {_next(items, fitted.embedder)}"
    )
    reply(args, {**facts, "unlabelled": unlabelled, "unreadable": skipped}, shown)


def _is_ours(path: Path) -> bool:
    """Whether a file may be replaced: it is a classifier."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            return "varscale" in (file.metadata() or {})
    except SafetensorError:
        return False


def _begin(args: Namespace, kind: str) -> Any:
    """Make the model that the items go into."""
    from varscale.classifier import FewShotClassifier
    from varscale.items.model import ItemModel

    embedder = _choose_embedder(args.embedder, kind, download=args.download)
    prior: Any = args.prior
    if prior is not None:
        try:
            prior = float(prior)
        except ValueError:
            prior = _prior(Path(prior), embedder)
    return ItemModel(FewShotClassifier(prior=prior, random_state=args.seed), embedder)


def _choose_embedder(spec: str | None, kind: str, *, download: bool) -> Any:
    """The embedder that was named, or the default one of texts; embeddings need none."""
    from varscale.items.embedders import make_embedder

    if kind == "embedding":
        if spec is not None:
            raise ValueError("The items are embeddings already; leave out --embedder.")
        return None
    if spec is None and kind == "image":
        raise ValueError(
            "Pictures need an embedder: --embedder run:RUN for a trained run, onnx:FILE, or "
            "python:MODULE:FUNCTION."
        )
    embedder = make_embedder(spec or "minilm", download=download)
    if embedder.takes not in (kind, None):
        raise ValueError(f"The embedder {embedder.spec} takes {embedder.takes}s, got {kind}s.")
    return embedder


def _prior(path: Path, embedder: Any) -> Any:
    """The prior of a stored classifier, if it was learned on embeddings of the same embedder."""
    from varscale.classifier import FewShotClassifier
    from varscale.items.model import about_items

    classifier = FewShotClassifier.load(path)
    prior, other = classifier.prior_, about_items(path, len(classifier.examples_)).get("embedder")
    if other is not None and embedder is not None and other["identity"] != embedder.identity:
        raise ValueError(
            f"Expected a prior of the embedder {embedder.spec}, got {path}, whose prior is of "
            f"{other['spec']} (other weights). Learn one with this embedder."
        )
    return prior


def _facts(path: Path, fitted: Any) -> dict[str, Any]:
    import torch

    classifier = fitted.classifier
    prior, counts, task = classifier.prior_, classifier.counts_, classifier.task_
    least = prior.conformity and prior.conformity.smallest_share(torch.from_numpy(counts))
    return {
        "model": str(path),
        "embedder": None if fitted.embedder is None else fitted.embedder.spec,
        "classes": len(classifier.classes_),
        "items": int(counts.sum()),
        "dim": prior.dim,
        "scale": task.alpha.item(),
        "prior_scale": prior.mean,
        "prior_scale_std": prior.std,
        "shot_offset": prior.shot_offset,
        "learned_on": prior.n_classes,
        "smallest_reject": least,  # nothing is rejected at smaller shares
    }


def _scale(classifier: Any, other: str | None) -> str:
    """Say the scale, and where it comes from; `other` is the file of the prior."""
    from varscale.classifier.task import tells_scale

    prior, task = classifier.prior_, classifier.task_
    own = tells_scale(task.place.count) or (prior.n_classes and other is None)
    sources = ["these items"] if own else []
    if prior.n_classes and other is not None:
        sources.append(f"the {prior.n_classes:,} base classes of {other}")
    told = f"learned from {' and '.join(sources)}" if sources else "a guess"
    told = told if prior.adapts else "as given"
    return f"Scale of these classes: {task.alpha.item():.3g}, {told}."


def _rejection(least: float | None, add: str | None, prior: str | None) -> str:
    """Say if items of other classes cannot be told as usual, and what to do."""
    if least is None:
        remedy = "Add classes, or give a --prior that was learned on others."
        if prior is not None:
            remedy = "Give a --prior that was learned on more classes."
        if add is not None:
            remedy = f"--add keeps the prior of {add}; fit all items at once, or with --prior."
        return (
            "Unknown items and --sets are not available: they need a prior that was learned on at "
            f"least ten classes of two or more examples each. {remedy}\n"
        )
    if least >= REJECT:
        return f"Unknown items and sets need shares above {least:.2g}, such as --reject 0.2.\n"
    return ""


def _next(items: Any, embedder: Any) -> str:
    """What to write behind the model to predict."""
    from varscale.items.embedders.base import executes_code

    is_table = any((items.columns.text, items.columns.image, items.columns.embedding))
    what = "NEW.csv --out answers.csv" if is_table else "FOLDER"
    if embedder is None:
        return "QUERIES"
    return f"{what} --embedder {embedder.spec}" if executes_code(embedder.spec) else what
