"""A model as one ONNX graph: supports, their labels and queries in, probabilities out."""

import copy
import io
import logging
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.export import Dim

from varscale.episode import Episode
from varscale.files import write_whole
from varscale.functional import log_softmax, task_prototype, unit
from varscale.hosts import MatchingNetwork, PrototypicalNetwork
from varscale.model import ScaledModel
from varscale.shots import shot_factor, tempered
from varscale.version import __version__

if TYPE_CHECKING:
    import onnx
    import onnxruntime

TOLERANCE = 1e-5
"""Largest difference of a probability between the graph and the model."""

ROUNDING = 10
"""Or this many times the rounding error of the model itself: a graph sums in another order."""


class FewShotGraph(nn.Module):
    """What `ScaledModel.predict` computes for one task, in operations that a graph can hold.

    The number of classes is the largest label plus one.

    Args:
        model: A prototypical or matching network.
    """

    def __init__(self, model: ScaledModel) -> None:
        super().__init__()
        known = isinstance(model.host, PrototypicalNetwork | MatchingNetwork)
        if model.host.conditioned or not known:
            raise ValueError(
                f"Expected a prototypical or a matching network, got {type(model.host).__name__}: "
                "its embedding depends on the task, and cannot be exported yet."
            )
        self.model = model

    def forward(
        self,
        support: Float[Tensor, "support *item"],
        labels: Integer[Tensor, " support"],
        query: Float[Tensor, "query *item"],
    ) -> Float[Tensor, "query way"]:
        """Probabilities of the queries' classes, at the posterior mean of the scale."""
        model, host = self.model, self.model.host
        support, query = host.backbone(support), host.backbone(query)
        alpha = model.scaler(task_prototype(support, query if model.transductive else None)).mean
        n_way = labels.max().item() + 1
        torch._check(n_way >= 2)  # so that tracing knows it is no empty axis
        member = labels == torch.arange(n_way).unsqueeze(1)  # (way, support)
        count = member.sum(1).to(support.dtype)
        missing = count == 0  # a number that no support has: its probability is 0
        if host.normalize != "none":
            query = unit(query)
        if host.normalize.startswith("each"):
            support = unit(support)
        if isinstance(host, MatchingNetwork):
            similarity = host.compare(query, support, alpha).unsqueeze(1)  # (query, 1, support)
            logits = similarity.masked_fill(~member, -torch.inf).logsumexp(-1)
        else:
            centres = member.to(support.dtype) @ support / count.clamp_min(1).unsqueeze(1)
            if host.normalize in ("prototype", "each_then_mean_unit"):
                centres = unit(centres)
            logits = host.compare(query, centres, alpha)
        if model.scaler.log_shot_offset is not None:
            logits = tempered(logits, shot_factor(count, model.scaler.log_shot_offset.exp()))
        return log_softmax(logits.masked_fill(missing, -torch.inf)).exp()


def export_model(model: ScaledModel, path: Path) -> float:
    """Write a model as an ONNX file, run it, and return its largest difference from the model.

    Args:
        model: The model, on a CPU.
        path: File to write.
    """
    shape = getattr(model.host.backbone, "in_shape", None)
    if shape is None:
        raise ValueError("Expected a backbone that knows its in_shape, got none.")
    graph = FewShotGraph(copy.deepcopy(model).float()).eval()
    content = _exported(graph, shape)
    difference, rounding = differences(model, content, shape)
    check_close(difference, rounding)
    write_whole(path, content)
    return difference


def _exported(graph: FewShotGraph, shape: tuple[int, ...]) -> bytes:
    support, query = (
        torch.linspace(0, 1, 10).view(10, *(1 for _ in shape)).expand(10, *shape).split([6, 4])
    )
    items = Dim("support", min=2)
    proto = traced(
        graph,
        {"support": support, "labels": torch.tensor([0, 0, 1, 1, 1, 2]), "query": query},
        ({0: items}, {0: items}, {0: Dim("query", min=1)}),
        ["probability"],
        "support: float32 items, images from 0 to 1. labels: int64, 0 to ways - 1. query: items. "
        "probability: one row a query, one column a class.",
    )
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "way"
    return bytes(proto.SerializeToString())


def traced(
    graph: nn.Module,
    inputs: dict[str, Tensor],
    dynamic: tuple[dict[int, Dim], ...],
    outputs: list[str],
    doc: str,
) -> "onnx.ModelProto":
    """A module as an ONNX model, in silence.

    Args:
        graph: The module.
        inputs: An example of each input, by name.
        dynamic: The axes of each that may have any length.
        outputs: Names of what it returns.
        doc: What goes in and comes out, for who opens the file.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)  # it regrets that torchvision is not there, and prints graphs
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
        del part.metadata_props[:]  # stack traces, with paths of this machine
    for tensor in inner.initializer:
        del tensor.metadata_props[:]
    return proto


def session(content: bytes) -> "onnxruntime.InferenceSession":
    """A graph, ready to run on a CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def check_close(difference: float, rounding: float) -> None:
    """Refuse a graph that does not do what its model does.

    Args:
        difference: Largest difference of a probability.
        rounding: What the model's own probabilities owe to single precision.
    """
    allowed = max(TOLERANCE, ROUNDING * rounding)
    if not difference <= allowed:
        raise ValueError(
            f"The graph differs from the model by {difference:.2g}, more than {allowed:.2g}. "
            "Nothing was written."
        )


def differences(model: ScaledModel, content: bytes, shape: tuple[int, ...]) -> tuple[float, float]:
    """Largest difference of a probability between graph and model, and of what is rounding.

    Over tasks of 2 to 20 ways and 1 to 10 shots. Rounding is what the model's own answers in
    float32 differ from those in float64.
    """
    single, exact = (copy.deepcopy(model).to(dtype).eval() for dtype in (torch.float, torch.double))
    running = session(content)
    generator = torch.Generator().manual_seed(0)
    difference, rounding = 0.0, 0.0
    for shots in ([1, 1], [2, 1, 5], [1] * 20, [10, 1, 3, 1, 7], [10] * 5):
        labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots))
        labels = labels[torch.randperm(len(labels), generator=generator)]
        support = torch.rand(len(labels), *shape, generator=generator)
        query = torch.rand(7, *shape, generator=generator)
        episode = Episode(support[None], labels[None], query[None], None, n_way=len(shots))
        with torch.inference_mode():
            rounded, expected = (m(episode)[0].exp().numpy() for m in (single, exact))
        feed = {"support": support.numpy(), "labels": labels.numpy(), "query": query.numpy()}
        (got,) = running.run(None, feed)
        difference = max(difference, float(np.abs(got - expected).max()))
        rounding = max(rounding, float(np.abs(rounded - expected).max()))
    return difference, rounding
