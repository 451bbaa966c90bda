"""`varscale fit`: fit a classifier to embeddings or images, and store it in one file."""

from pathlib import Path

import torch
from jsonargparse import Namespace

from varscale.classifier import FewShotClassifier, Prior
from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.items.embedded import Items, read_embedded
from varscale.runs import load

SOURCE = (
    option("--run RUN", "run directory whose model embeds images"),
    option("--split", "use only the classes of this split: train, val or test"),
)
"""Options that say how to read items."""


@command(
    "Fit a few-shot classifier to embeddings, or to images that a run embeds, and store it.",
    "varscale fit embeddings.npz intents.safetensors",
    option(
        "source",
        "file of embeddings (npz, npy, safetensors); with --run, a folder of class folders",
    ),
    option("model", "file to write"),
    *SOURCE,
    option("--prior FILE", "fitted classifier whose prior to use; or a number, the fixed scale"),
    option("--add FILE", "fitted classifier to add these items to; keeps its prior"),
    option("--seed", "seed of the fit", default=0),
)
def run(args: Namespace) -> None:
    """Fit, store, and print what was learned."""
    if args.prior is not None and args.add is not None:
        raise ValueError("--prior and --add are mutually exclusive.")
    model = Path(args.model)
    if model.exists() and model.samefile(args.source):
        raise ValueError(f"Expected a file to write that is not the source, got {args.source}.")
    if not model.parent.is_dir():
        raise ValueError(f"Expected a folder at {model.parent} to write {model.name} into.")
    items = read_source(args)
    if items.classes is None:
        raise ValueError(
            f"Expected the classes of the items in {args.source}: an array of labels, or folders "
            "named like the classes."
        )
    if args.add is not None:
        classifier = FewShotClassifier.load(args.add)
        classifier.partial_fit(items.embeddings, items.classes)
    else:
        classifier = FewShotClassifier(prior=_prior(args.prior), random_state=args.seed)
        classifier.fit(items.embeddings, items.classes)
    classifier.save(model)
    prior, counts, task = classifier.prior_, classifier.counts_, classifier.task_
    least = prior.conformity and prior.conformity.smallest_share(torch.from_numpy(counts))
    facts = {
        "model": str(model),
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
    shown = (
        f"{model}: {facts['classes']} classes, {facts['items']:,} items of {prior.dim} numbers.\n"
        f"{prior}\n"
        f"Scale of these classes: {task.alpha.item():.3g}\n"
        f"Next: varscale predict {model} QUERIES"
    )
    reply(args, facts, shown)


def _prior(given: str | None) -> Prior | float | None:
    """Read a number, or the prior of a stored classifier."""
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        return FewShotClassifier.load(given).prior_


def read_source(args: Namespace) -> Items:
    """Read items, or embed them by a run's model."""
    model = load(args.run) if args.run else None
    return read_embedded(Path(args.source), model=model, split=args.split)
