"""`varscale export`: write a run or a fitted classifier as one ONNX file."""

from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.core.extras import needs
from varscale.core.files import check_target, marked

PRODUCER = b"\x12\x08varscale"
"""The field of an ONNX file that names who made it, behind the version."""


@command(
    "Write a fitted classifier, or a run's best model, as one ONNX file. A classifier includes its "
    "classes, and its embedder if that is run:RUN, or onnx:FILE of pictures; a run's model takes "
    "the support set as an input.",
    "varscale export intents.safetensors intents.onnx --reject 0.1",
    option("model", "file that varscale fit wrote, or a run directory"),
    option("file", "file to write, ending in .onnx"),
    option(
        "--reject",
        "for a classifier: share of items of known classes that may be called unknown; by default "
        "that of varscale predict; 0 calls none so",
        float,
    ),
    option("--embedder EMB", "where the classifier's embedder is now, if it has moved"),
    option("--card FILE", "write a model card, such as README.md"),
)
def run(args: Namespace) -> None:
    """Export, compare the graph with the model, and describe its inputs."""
    model, file = Path(args.model), Path(args.file)
    if not model.exists():
        raise ValueError(
            f"Expected a run directory, or a file that varscale fit wrote, got {model}, which does "
            "not exist."
        )
    if file.suffix != ".onnx":
        raise ValueError(f"Expected a file name ending in .onnx, got {file}.")
    if file.exists() and model.resolve() in file.resolve().parents:
        raise ValueError(f"Expected a file to write that is not read, got {file}.")
    check_target(file, "a graph", marked(PRODUCER, at=2), reads=(args.model,))
    if args.card is not None and Path(args.card).resolve() == file.resolve():
        raise ValueError(f"Expected a card in a file of its own, got {args.card}.")
    with needs("export", "Export"):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    export = _classifier if model.is_file() else _run
    facts, said = export(args, model, file)
    size = file.stat().st_size
    shown = (
        f"{file}: {size:,} bytes.\n{said}\n"
        f"Largest difference from PyTorch: {facts['difference']:.1e}."
    )
    if model.is_file():
        shown += f"\nNext: varscale predict {file} NEW"
    reply(args, {"file": args.file, "bytes": size, **facts}, shown)


def _run(args: Namespace, path: Path, file: Path) -> tuple[dict[str, Any], str]:
    from varscale.export import export_model
    from varscale.runs import Run

    for name in ("reject", "embedder", "card"):
        if args[name] is not None:
            raise ValueError(f"--{name} needs a file that varscale fit wrote, got a run directory.")
    model = Run.open(path).model()
    difference = export_model(model, file)
    item = list(model.host.backbone.in_shape)  # type: ignore[arg-type]
    shape = ", ".join(map(str, item))
    return {"item": item, "difference": difference}, (
        f"Inputs: support (n, {shape}) in float32, images from 0 to 1; labels (n,) in int64, 0 to "
        f"ways - 1; query (m, {shape}). Output: probability (m, ways)."
    )


def _classifier(args: Namespace, path: Path, file: Path) -> tuple[dict[str, Any], str]:
    from varscale.export import export_items
    from varscale.items.job import REJECT
    from varscale.report.card import check_card, write_card

    if args.card is not None:
        check_card(Path(args.card))
    model, fitted = _load(path, args.embedder)
    reject = args.reject
    if reject is None:
        reject = REJECT if model.can_reject(REJECT) else None
    elif reject == 0:
        reject = None
    exported = export_items(model, file, reject=reject, fitted=fitted)
    if args.card is not None:
        write_card(Path(args.card), model, file, embedder=fitted, reject=reject)
    shape, ways = ", ".join(map(str, exported.item)), len(model.classes)
    whole = exported.item != [model.classifier.n_features_in_]
    what = f"{'image' if whole else 'query'} (m, {shape}) in float32{', from 0 to 1' * whole}"
    at = "never true" if reject is None else f"at {reject:g}"
    said = (
        f"Input: {what}. Outputs: probability (m, {ways}), the classes in the order of the "
        f"metadata's `classes`; unknown (m,), {at}; label (m,), the likeliest class."
    )
    if fitted is not None and not whole:
        said += f" The queries are embeddings of {fitted['spec']}."
    facts = {"item": exported.item, "takes": exported.takes, "classes": ways, "reject": reject}
    return {**facts, "difference": exported.difference}, said


def _load(path: Path, given: str | None) -> tuple[Any, dict[str, str] | None]:
    """The classifier of a file, with its embedder if a graph can hold that."""
    from varscale.classifier.file import read_about
    from varscale.export.items import can_hold
    from varscale.items.embedders.base import fitted_embedder
    from varscale.items.model import load_model

    model = load_model(path, embedder=given, make=None)
    fitted = read_about(path).get("embedder")
    if fitted is None:
        return model, None
    if can_hold(fitted["spec"]):
        model.embedder = fitted_embedder(path, fitted, given=given)
    elif given is not None:
        raise ValueError(
            f"{path} was fitted with the embedder {fitted['spec']}, which no graph can hold; leave "
            "out --embedder."
        )
    return model, fitted
