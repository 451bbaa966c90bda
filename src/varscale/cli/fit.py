"""`varscale fit`: learn from embeddings, or images and a run, and store one file to deploy."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.featurize import read
from varscale.learned_scale import LearnedScale
from varscale.scale_learner import ScalerName

if TYPE_CHECKING:
    from varscale.estimator import FewShotClassifier


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Fit a few-shot classifier to embeddings, or to images that a run embeds.",
        "varscale fit embeddings.npz intents.safetensors",
    )
    parser.add_argument(
        "source",
        type=str,
        help="npz, npy or safetensors file; with --run, a folder of class folders",
    )
    parser.add_argument("model", type=str, help="file to write")
    parser.add_argument("--run", type=str | None, help="run directory that embeds images")
    parser.add_argument("--split", type=str | None, help="only classes of this split of the file")
    parser.add_argument(
        "--scale", type=str | None, help="fitted classifier whose scale to use; or a number"
    )
    parser.add_argument(
        "--scaler", type=ScalerName | None, help="svs (the default), one scale; or d-svs, many"
    )
    parser.add_argument(
        "--add", type=str | None, help="fitted classifier to add these items to; nothing is learned"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed")
    return parser


def run(args: Namespace) -> None:
    """Fit, store, and say what was learned."""
    from varscale.estimator import FewShotClassifier  # scikit-learn takes a second to import

    if sum(given is not None for given in (args.scale, args.scaler, args.add)) > 1:
        raise ValueError(
            "Expected one of --scale, --scaler and --add, got more: a scale that is given, by a "
            "number or with a classifier, is not learned."
        )
    model = Path(args.model)
    if model.exists() and model.samefile(args.source):
        raise ValueError(f"Expected another file to write than the source {args.source}.")
    if not model.parent.is_dir():
        raise ValueError(f"Expected a folder at {model.parent} to write {model.name} into.")
    items = read(Path(args.source), run=Path(args.run) if args.run else None, split=args.split)
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
            scale=_scale(args.scale), scaler=args.scaler or "svs", random_state=args.seed
        )
        classifier.fit(items.embeddings, items.classes)
    classifier.save(model)
    scale = classifier.scale_
    facts = {
        "model": str(model),
        "classes": len(classifier.classes_),
        "items": int(classifier.counts_.sum()),
        "dim": scale.dim,
        "scale": scale.mean,
        "scale_std": scale.std,
        "shot_offset": scale.shot_offset,
        "learned_on": scale.n_classes,
        "smallest_reject": _smallest(classifier),
    }
    if args.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    sys.stdout.write(
        f"{model}: {facts['classes']} classes, {facts['items']:,} items of {scale.dim} numbers.\n"
        f"{scale}\n"
        f"Now ask it: varscale predict {model} QUERIES\n"
    )


def _smallest(classifier: "FewShotClassifier") -> float | None:
    """The share up to which nothing is rejected; `None` where nothing can be."""
    conformity, count = classifier.scale_.conformity, torch.from_numpy(classifier.counts_)
    return None if conformity is None else conformity.smallest_share(count)


def _scale(given: str | None) -> LearnedScale | float | None:
    """A scale by number, or that of a stored classifier."""
    from varscale.estimator import FewShotClassifier

    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        return FewShotClassifier.load(given).scale_
