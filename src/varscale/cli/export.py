"""`varscale export`: write a run or a fitted classifier as one ONNX file."""

from pathlib import Path

from jsonargparse import Namespace

from varscale.classifier import FewShotClassifier
from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.export import export_classifier, export_model
from varscale.runs import Run


@command(
    "Write a fitted classifier, or a run's best model, as one ONNX file. A classifier includes its "
    "classes; a run's model takes the support set as an input.",
    "varscale export intents.safetensors intents.onnx --reject 0.1",
    option("model", "file that varscale fit wrote, or a run directory"),
    option("file", "file to write, ending in .onnx"),
    option(
        "--reject",
        "for a classifier: share of queries of known classes that may be called unknown",
        float,
    ),
)
def run(args: Namespace) -> None:
    """Export, compare the graph with the model, and describe its inputs."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(f'Export needs {error.name}: pip install "varscale[export]".') from error
    model, file = Path(args.model), Path(args.file)
    if not model.exists():
        raise ValueError(
            f"Expected a run directory, or a file that varscale fit wrote, got {model}, which does "
            "not exist."
        )
    if file.suffix != ".onnx":
        raise ValueError(f"Expected a file name ending in .onnx, got {file}.")
    if file.is_dir() or not file.parent.is_dir():
        raise ValueError(f"Expected a file to write in an existing folder, got {file}.")
    if file.exists() and (file.samefile(model) or model.resolve() in file.resolve().parents):
        raise ValueError(f"Expected a file to write that is not read, got {file}.")
    export = _classifier if model.is_file() else _run
    facts, said = export(model, file, args.reject)
    size = file.stat().st_size
    shown = (
        f"{file}: {size:,} bytes.\n{said}\n"
        f"Largest difference from PyTorch: {facts['difference']:.1e}."
    )
    reply(args, {"file": args.file, "bytes": size, **facts}, shown)


def _run(path: Path, file: Path, reject: float | None) -> tuple[dict[str, object], str]:
    if reject is not None:
        raise ValueError("--reject needs a file that varscale fit wrote, got a run directory.")
    model = Run.open(path).model()
    difference = export_model(model, file)
    item = list(model.host.backbone.in_shape)  # type: ignore[arg-type]
    shape = ", ".join(map(str, item))
    return {"item": item, "difference": difference}, (
        f"Inputs: support (n, {shape}) in float32, images from 0 to 1; labels (n,) in int64, 0 to "
        f"ways - 1; query (m, {shape}). Output: probability (m, ways)."
    )


def _classifier(path: Path, file: Path, reject: float | None) -> tuple[dict[str, object], str]:
    classifier = FewShotClassifier.load(path)
    difference = export_classifier(classifier, file, reject=reject)
    dim, ways = classifier.n_features_in_, len(classifier.classes_)
    at = "never true" if reject is None else f"at {reject:g}"
    return {"item": [dim], "classes": ways, "reject": reject, "difference": difference}, (
        f"Input: query (m, {dim}) in float32. Outputs: probability (m, {ways}), the classes in the "
        f"order of the metadata's `classes`; unknown (m,), {at}."
    )
