"""Trace a module into an ONNX graph, run the graph, and compare it with the module."""

import io
import logging
import warnings
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.export import Dim

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
        doc: Description of inputs and outputs, stored in the file.
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
    for part in (inner, *inner.node, *inner.value_info, *inner.input, *inner.output):
        del part.metadata_props[:]  # stack traces with paths of this machine
    for tensor in inner.initializer:
        del tensor.metadata_props[:]
    return proto


def session(content: bytes) -> "onnxruntime.InferenceSession":
    """Inference session of a graph, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def check_close(difference: float, rounding: float) -> None:
    """Raise ValueError if a graph differs from its model by more than rounding.

    Args:
        difference: Largest difference in probability.
        rounding: Rounding error of the model's own probabilities in float32.
    """
    allowed = max(TOLERANCE, ROUNDING * rounding)
    if not difference <= allowed:
        raise ValueError(
            f"The graph differs from the model by {difference:.2g}, more than {allowed:.2g}. "
            "Nothing was written."
        )
