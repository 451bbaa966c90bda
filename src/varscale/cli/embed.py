"""`varscale embed`: write the embeddings of a dataset to a file."""

import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from jsonargparse import Namespace

from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.core.allocator import keep_memory
from varscale.core.files import check_target, write_whole
from varscale.evaluation.evaluation import embed_split
from varscale.runs import Run

MEMBERS = ("made_by", "embeddings", "labels", "class_names", "class_split")
"""Arrays of a file that we wrote, and may replace: if it has others too, somebody added to it."""


@command(
    "Embed every item of a dataset with a run's best model, and write them to an npz file.",
    "varscale embed runs/svs glyphs.npz",
    option("run", "run directory"),
    option("file", "file to write, ending in .npz"),
    option("--dataset", "dataset to embed, with items of the same shape; by default the run's own"),
)
def run(args: Namespace) -> None:
    """Write embeddings, labels, class names and splits, as `varscale data prepare` reads them."""
    keep_memory()
    check_target(Path(args.file), "embeddings", _is_ours, makes_folder=True)
    run = Run.open(Path(args.run))
    model, dataset = run.model(), run.dataset(args.dataset)
    if model.host.conditioned:
        raise ValueError(f"{run.path} embeds an item differently in every task: see docs/tadam.md.")
    splits = [dataset[name] for name in dict.fromkeys(dataset.class_split)]
    order = np.concatenate([split.rows for split in splits])
    items = torch.cat([embed_split(model, split, torch.device("cpu")) for split in splits])
    buffer = io.BytesIO()
    arrays = {
        "embeddings": items.float().numpy(),
        "labels": dataset.labels[order],
        "class_names": np.array(dataset.class_names),
        "class_split": np.array(dataset.class_split),
    }
    np.savez(buffer, made_by=np.array("varscale embed"), **arrays)
    Path(args.file).parent.mkdir(parents=True, exist_ok=True)
    write_whole(Path(args.file), buffer.getvalue())
    shown = (
        f"{args.file}: {len(items):,} embeddings of {items.shape[1]} numbers.\n"
        f"Now prepare it: varscale data prepare {Path(args.file).stem} {args.file}"
    )
    reply(args, {"file": args.file, "shape": list(items.shape)}, shown)


def _is_ours(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            return file.namelist() == [f"{name}.npy" for name in MEMBERS]
    except zipfile.BadZipFile:
        return False
