"""One graph from picture to label: that of an embedder, then that of a fitted classifier."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.export import Dim

from varscale.classifier import FewShotClassifier
from varscale.export.classifier import OUTPUTS, add_facts, classifier_graph, level
from varscale.export.onnx import trace, write_checked
from varscale.items.embedders.base import Embedder
from varscale.items.embedders.onnx import OnnxFile
from varscale.items.embedders.run import TrainedRun
from varscale.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

PREFIX = "embedder/"
"""Before the names in the embedder's graph, which may be those of the classifier's too."""
EMBEDDED = "picture/embedded"
"""What the embedder's part gives to the classifier's."""
PICTURES = 12
"""Pictures of each kind on which the graph is compared with its parts."""


@dataclass(frozen=True, eq=False)
class PictureEmbedder:
    """An embedder of pictures that can be part of a graph.

    Attributes:
        embedder: The embedder.
        proto: Its graph; the first input takes pictures, the first output gives embeddings.
        shape: Channels, height and width of a picture.
        mean: What is subtracted from a picture from 0 to 1, of each channel.
        std: What it is divided by then.
    """

    embedder: Embedder
    proto: "ModelProto"
    shape: tuple[int, int, int]
    mean: np.ndarray
    std: np.ndarray


def picture_embedder(embedder: Embedder | None) -> PictureEmbedder | None:
    """The graph of an embedder of pictures; `None` for those that have none."""
    if isinstance(embedder, TrainedRun):
        channels, size, _ = shape = tuple(embedder.shape)
        backbone = copy.deepcopy(embedder.host.backbone).float().eval()
        example = torch.linspace(0, 1, 2).view(2, 1, 1, 1).expand(2, *shape)
        batch = ({0: Dim("image", min=1)},)
        proto = trace(backbone, {"picture": example}, batch, ["embedding"], "")
        zero = np.zeros((channels, 1, 1), np.float32)
        return PictureEmbedder(embedder, proto, (channels, size, size), zero, zero + 1)
    if isinstance(embedder, OnnxFile) and embedder.takes == "image":
        shape = (embedder.channels, embedder.size, embedder.size)
        proto = _load(embedder.path)
        return PictureEmbedder(embedder, proto, shape, embedder.mean, embedder.std)
    return None


def export_pictures(
    classifier: FewShotClassifier,
    first: PictureEmbedder,
    path: Path,
    *,
    reject: float | None = None,
    about: Mapping[str, Any] | None = None,
) -> float:
    """Write an embedder of pictures and a classifier as one ONNX file.

    Args:
        classifier: The classifier, fitted to embeddings of that embedder.
        first: The embedder.
        path: File to write.
        reject: As in `FewShotClassifier.predict`; with `None` no picture is unknown.
        about: More facts to keep in the file's metadata, each as JSON, beside `classes`, `reject`,
            `takes`, `channels` and `size`.

    Returns:
        The largest difference in probability between the graph and its two parts.
    """
    proto = join(first, classifier_graph(classifier, reject))
    channels, size, _ = first.shape
    proto.doc_string = (
        f"image: float32 pictures from 0 to 1, (n, {channels}, {size}, {size}). "
        f"{OUTPUTS.format(level(reject))}"
    )
    add_facts(proto, {"takes": "image", "channels": channels, "size": size, **(about or {})})
    return write_checked(path, proto, lambda graph: differences(classifier, first, graph))


def join(first: PictureEmbedder, second: "ModelProto") -> "ModelProto":
    """Join the graphs of an embedder and of a classifier, normalisation in front."""
    from onnx import compose

    embedder, classifier = _same_version(first.proto, second)
    embedder = compose.add_prefix(embedder, PREFIX)
    _complete(embedder.graph, first)
    try:
        proto = compose.merge_models(embedder, classifier, io_map=[(EMBEDDED, "query")])
        proto.ByteSize()
    except Exception as error:
        why = " ".join(str(error).split())[:200].rstrip(".")
        raise ValueError(
            f"The graph of the embedder {first.embedder.spec} cannot be joined with the "
            f"classifier: {why}. Export embeddings from it, and fit a classifier to these."
        ) from error
    del proto.metadata_props[:]
    proto.metadata_props.extend(second.metadata_props)
    proto.producer_name, proto.producer_version = "varscale", __version__
    proto.graph.name = "picture_to_label"
    for output in proto.graph.output:
        output.type.tensor_type.shape.dim[0].dim_param = "image"
    return proto


def differences(
    classifier: FewShotClassifier, first: PictureEmbedder, graph: "InferenceSession"
) -> tuple[float, float]:
    """Compare the graph with embedder and classifier, on noise, stripes and plain colours."""
    draw, (channels, size, _) = np.random.default_rng(0), first.shape
    noise = draw.random((PICTURES, *first.shape))
    plain = np.broadcast_to(draw.random((PICTURES, channels, 1, 1)), noise.shape)
    waves = draw.uniform(0.5, 8, (PICTURES, channels, 2, 1)) * np.linspace(0, np.pi, size)
    stripes = np.sin(waves[:, :, 0, :, None] + waves[:, :, 1, None, :]) / 2 + 0.5
    pictures = np.concatenate([noise, plain, stripes]).astype(np.float32)
    given = (pictures - first.mean) / first.std
    embedded = first.embedder.embed(list(given))
    exact = classifier.predict_proba(embedded.astype(np.float64))
    rounding = float(np.abs(classifier.predict_proba(embedded) - exact).max())
    if isinstance(first.embedder, TrainedRun):
        backbone = copy.deepcopy(first.embedder.host.backbone).double().eval()
        with torch.inference_mode():
            precise = backbone(torch.from_numpy(given).double()).numpy()
        rounding += float(np.abs(classifier.predict_proba(precise) - exact).max())
    probability = graph.run(["probability"], {"image": pictures})[0]
    return float(np.abs(probability - exact).max()), rounding


def _load(path: Path) -> "ModelProto":
    """Read the graph of an embedder, with one input and one output."""
    import onnx

    try:
        proto = onnx.load(path)
    except Exception as error:
        why = " ".join(str(error).split())[:200].rstrip(".")
        raise ValueError(f"{path} is not a readable ONNX file: {why}.") from error
    graph = proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [given for given in graph.input if given.name not in weights]
    if len(inputs) > 1:
        named = ", ".join(given.name for given in inputs)
        raise ValueError(f"Expected one input of {path}, its pictures, got {named}.")
    batch = inputs[0].type.tensor_type.shape.dim[0]
    if batch.HasField("dim_value"):
        raise ValueError(
            f"Expected {path} to take any number of pictures, got a graph for {batch.dim_value} at "
            "a time. Write it again with a dynamic first axis."
        )
    del graph.input[:], graph.output[1:]
    graph.input.extend(inputs)
    return proto


def _same_version(*protos: "ModelProto") -> list["ModelProto"]:
    """Convert graphs to the newest operators among them."""
    from onnx import version_converter

    newest, converted = max(map(_version, protos)), []
    for proto in protos:
        if (own := _version(proto)) != newest:
            try:
                proto = version_converter.convert_version(proto, newest)
            except Exception as error:
                why = " ".join(str(error).split())[:200].rstrip(".")
                raise ValueError(
                    f"Expected a graph with operators of ONNX opset {newest}, got {own}, which "
                    f"cannot be converted: {why}. Write the embedder again with opset {newest}."
                ) from error
        converted.append(proto)
    form = max(proto.ir_version for proto in converted)
    for proto in converted:
        proto.ir_version = form
    return converted


def _version(proto: "ModelProto") -> int:
    return next(int(used.version) for used in proto.opset_import if used.domain in ("", "ai.onnx"))


def _complete(graph: Any, first: PictureEmbedder) -> None:
    """Put normalisation before an embedder's graph, and make rows of float32 behind it.

    A picture with NaN or infinity gets NaN, even if an operator of the graph ignores it.
    """
    from onnx import TensorProto, helper, numpy_helper

    entry, end, image = graph.input[0].name, graph.output[0].name, "image"
    constants = {
        "picture/mean": first.mean.astype(np.float32),
        "picture/std": first.std.astype(np.float32),
        "picture/axes": np.array([1, 2, 3]),
        "picture/zero": np.zeros((), np.float32),
    }
    before = [
        helper.make_node("Sub", [image, "picture/mean"], ["picture/centred"]),
        helper.make_node("Div", ["picture/centred", "picture/std"], [entry]),
    ]
    after = [
        helper.make_node("Cast", [end], ["picture/single"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["picture/single"], ["picture/flat"], axis=1),
        helper.make_node("ReduceSum", [image, "picture/axes"], ["picture/total"], keepdims=1),
        helper.make_node("Flatten", ["picture/total"], ["picture/sum"], axis=1),
        helper.make_node("Mul", ["picture/sum", "picture/zero"], ["picture/lost"]),  # 0, or NaN
        helper.make_node("Add", ["picture/flat", "picture/lost"], [EMBEDDED]),
    ]
    nodes = [*before, *graph.node, *after]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    shapes: dict[str, list[Any]] = {image: [image, *first.shape], EMBEDDED: [image, None]}
    taken, given = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )
    graph.input.append(taken)
    graph.output.append(given)
