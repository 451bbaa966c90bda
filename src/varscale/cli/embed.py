"""`varscale embed`: write the embeddings of a dataset to a file."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import torch
from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.core.allocator import keep_memory
from varscale.core.files import write_whole
from varscale.evaluation.evaluation import embed_split
from varscale.runs import Run


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Embed every item of a dataset with a run's best model, and write them to an npz file.",
        "varscale embed runs/svs glyphs.npz",
    )
    parser.add_argument("run", type=str, help="run directory")
    parser.add_argument("file", type=str, help="file to write, ending in .npz")
    parser.add_argument(
        "--dataset",
        type=str | None,
        help="dataset to embed, with items of the same shape; by default the run's own",
    )
    return parser


def run(args: Namespace) -> None:
    """Write embeddings, labels, class names and splits, as `varscale data prepare` reads them."""
    keep_memory()
    run = Run.open(Path(args.run))
    model, dataset = run.model(), run.dataset(args.dataset)
    if model.host.conditioned:
        raise ValueError(f"{run.path} embeds an item differently in every task: see docs/tadam.md.")
    splits = [dataset[name] for name in dict.fromkeys(dataset.class_split)]
    order = np.concatenate([split.rows for split in splits])
    items = torch.cat([embed_split(model, split, torch.device("cpu")) for split in splits])
    buffer = io.BytesIO()
    np.savez(
        buffer,
        embeddings=items.float().numpy(),
        labels=dataset.labels[order],
        class_names=np.array(dataset.class_names),
        class_split=np.array(dataset.class_split),
    )
    Path(args.file).parent.mkdir(parents=True, exist_ok=True)
    write_whole(Path(args.file), buffer.getvalue())
    if args.json:
        sys.stdout.write(json.dumps({"file": args.file, "shape": list(items.shape)}) + "\n")
        return
    name = Path(args.file).stem
    sys.stdout.write(
        f"{args.file}: {len(items):,} embeddings of {items.shape[1]} numbers.\n"
        f"Now prepare it: varscale data prepare {name} {args.file}\n"
    )
