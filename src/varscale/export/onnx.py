"""Trace a module into an ONNX graph, run the graph, and compare it with the module."""

import io
import logging
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.export import Dim

from varscale.core.files import write_whole
from varscale.items.sessions import open_session
from varscale.version import __version__

if TYPE_CHECKING:
    import onnx
    import onnxruntime

TOLERANCE = 1e-5
"""Largest difference in probability allowed between graph and model."""

ROUNDING = 10
"""Or allow this many times the model's own rounding error: a graph sums in another order."""


def trace(
    graph: nn.Module,
    inputs: dict[str, Tensor],
    dynamic: tuple[dict[int, Dim], ...],
    outputs: list[str],
    doc: str,
) -> "onnx.ModelProto":
    """Trace a module into an ONNX model, without output of the exporter.

    Args:
        graph: The module.
        inputs: An example of each input, by name.
        dynamic: The axes of each input that may have any length.
        outputs: Names of the outputs.
        doc: Description that is stored in the file.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)  # it complains about missing torchvision, and prints graphs
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph,
                tuple(inputs.values()),
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes=dynamic,
                dynamo=True,
                verbose=False,
            )
    finally:
        logging.disable(disabled)
    assert program is not None
    proto = program.model_proto
    proto.doc_string = doc
    proto.producer_name, proto.producer_version = "varscale", __version__
    inner = proto.graph
    lists = (inner.node, inner.value_info, inner.input, inner.output, inner.initializer)
    for part in (inner, *chain.from_iterable(lists)):
        del part.metadata_props[:]  # stack traces with paths of this machine
    return proto


def write_checked(
    path: Path,
    proto: "onnx.ModelProto",
    compare: "Callable[[onnxruntime.InferenceSession], tuple[float, float]]",
) -> float:
    """Write a graph, unless it differs from its model by more than rounding.

    Args:
        path: File to write.
        proto: The graph.
        compare: Gives the largest difference in probability, which is returned, and the largest
            rounding error: the difference between the model's own answers in float32 and float64.
    """
    content = bytes(proto.SerializeToString())
    difference, rounding = compare(open_session(content))
    allowed = max(TOLERANCE, ROUNDING * rounding)
    if not difference <= allowed:
        raise ValueError(
            f"The graph differs from the model by {difference:.2g}, more than {allowed:.2g}. "
            "Nothing was written."
        )
    write_whole(path, content)
    return difference
