"""`varscale fit`: fit a classifier to embeddings or images, and store it in one file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jsonargparse import Namespace

from varscale.classifier import Prior
from varscale.classifier.learner import ScalerName
from varscale.cli.parser import Parser, command
from varscale.items.embedded import read_embedded
from varscale.runs import load

if TYPE_CHECKING:
    from varscale.classifier.estimator import FewShotClassifier


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Fit a few-shot classifier to embeddings, or to images that a run embeds, and store it.",
        "varscale fit embeddings.npz intents.safetensors",
    )
    parser.add_argument(
        "source",
        type=str,
        help="file of embeddings (npz, npy, safetensors); with --run, a folder of class folders",
    )
    parser.add_argument("model", type=str, help="file to write")
    parser.add_argument(
        "--run", type=str | None, metavar="RUN", help="run directory whose model embeds images"
    )
    parser.add_argument(
        "--split", type=str | None, help="use only the classes of this split: train, val or test"
    )
    parser.add_argument(
        "--prior",
        type=str | None,
        metavar="FILE",
        help="fitted classifier whose prior to use; or a number, the fixed scale",
    )
    parser.add_argument(
        "--scaler",
        type=ScalerName | None,
        help="learn one scale (svs, the default) or one per dimension (d-svs)",
    )
    parser.add_argument(
        "--add",
        type=str | None,
        metavar="FILE",
        help="fitted classifier to add these items to; keeps its prior",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the fit")
    return parser


def run(args: Namespace) -> None:
    """Fit, store, and print what was learned."""
    from varscale.classifier.estimator import FewShotClassifier  # brings scikit-learn

    if sum(given is not None for given in (args.prior, args.scaler, args.add)) > 1:
        raise ValueError("--prior, --scaler and --add are mutually exclusive.")
    model = Path(args.model)
    if model.exists() and model.samefile(args.source):
        raise ValueError(f"Expected a file to write that is not the source, got {args.source}.")
    if not model.parent.is_dir():
        raise ValueError(f"Expected a folder at {model.parent} to write {model.name} into.")
    items = read_embedded(
        Path(args.source), model=load(args.run) if args.run else None, split=args.split
    )
    if items.classes is None:
        raise ValueError(
            f"Expected the classes of the items in {args.source}: an array of labels, or folders "
            "named like the classes."
        )
    if args.add is not None:
        classifier = FewShotClassifier.load(args.add)
        classifier.partial_fit(items.embeddings, items.classes)
    else:
        classifier = FewShotClassifier(
            prior=_prior(args.prior), scaler=args.scaler or "svs", random_state=args.seed
        )
        classifier.fit(items.embeddings, items.classes)
    classifier.save(model)
    prior = classifier.prior_
    facts = {
        "model": str(model),
        "classes": len(classifier.classes_),
        "items": int(classifier.counts_.sum()),
        "dim": prior.dim,
        "scale": prior.mean,
        "scale_std": prior.std,
        "shot_offset": prior.shot_offset,
        "learned_on": prior.n_classes,
        "smallest_reject": _smallest(classifier),
    }
    if args.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    sys.stdout.write(
        f"{model}: {facts['classes']} classes, {facts['items']:,} items of {prior.dim} numbers.\n"
        f"{prior}\n"
        f"Next: varscale predict {model} QUERIES\n"
    )


def _smallest(classifier: "FewShotClassifier") -> float | None:
    """The smallest share that rejects anything; `None` if nothing can be rejected."""
    conformity, count = classifier.prior_.conformity, torch.from_numpy(classifier.counts_)
    return None if conformity is None else conformity.smallest_share(count)


def _prior(given: str | None) -> Prior | float | None:
    """Read a number, or the prior of a stored classifier."""
    from varscale.classifier.estimator import FewShotClassifier

    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        return FewShotClassifier.load(given).prior_
