"""`varscale export`: a run as one ONNX file."""

import json
import sys
from pathlib import Path

from jsonargparse import Namespace

from varscale.cli.parser import Parser, command
from varscale.onnx_graph import export_model
from varscale.run import Run


def parser() -> Parser:
    """Options of the command."""
    parser = command(
        "Write a run's best model as one ONNX file; the support set is an input.",
        "varscale export runs/svs svs.onnx",
    )
    parser.add_argument("run", type=str, help="a run directory")
    parser.add_argument("file", type=str, help="ONNX file to write")
    return parser


def run(args: Namespace) -> None:
    """Export, check the graph against the model, and say what goes in."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(f'Export needs {error.name}: pip install "varscale[export]".') from error
    model = Run.open(Path(args.run)).model()
    difference = export_model(model, Path(args.file))
    size = Path(args.file).stat().st_size
    item = list(model.host.backbone.in_shape)  # type: ignore[arg-type]
    if args.json:
        report = {"file": args.file, "bytes": size, "item": item, "difference": difference}
        sys.stdout.write(json.dumps(report) + "\n")
        return
    shape = ", ".join(map(str, item))
    sys.stdout.write(
        f"{args.file}: {size:,} bytes.\n"
        f"Inputs: support (n, {shape}) in float32, images from 0 to 1; labels (n,) in int64, 0 to "
        f"ways - 1; query (m, {shape}). Output: probability (m, ways).\n"
        f"Largest difference from PyTorch: {difference:.1e}.\n"
    )
