"""A fitted classifier as one ONNX graph: embeddings in; probability, "none of these", label out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.export import Dim

from varscale.classifier import FewShotClassifier
from varscale.export.onnx import trace, write_checked
from varscale.functional import average_softmax, query_logits, unit

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

OUTPUTS = (
    "probability: one column a class, in the order of the metadata's classes. unknown: whether it "
    "is none of them, {}, or has NaN. label: the likeliest class."
)
"""Description of the outputs."""


class ClassifierGraph(nn.Module):
    """A fitted `FewShotClassifier` as a module in float32, with all constants precomputed."""

    origin: Tensor
    matrix: Tensor | None
    centre: Tensor
    references: Tensor
    weights: Tensor
    bias: Tensor
    std: Tensor
    floor: Tensor

    def __init__(self, classifier: FewShotClassifier, reject: float | None) -> None:
        super().__init__()
        task, prior = classifier.task_, classifier.prior_
        matrix, count = prior.whitening.matrix, torch.from_numpy(classifier.counts_)
        self.query_power, self.top, self.unit = prior.query_power, prior.top, prior.unit
        self.uncertain = bool(task.std.any())
        self.register_buffer("std", task.std.float())
        self.register_buffer("origin", prior.whitening.mean.float())
        self.register_buffer("matrix", None if matrix is None else matrix.float())
        self.register_buffer("centre", task.place.origin.float())
        self.register_buffer("references", task.place.references.float())
        self.register_buffer("weights", task.weights.float())
        self.register_buffer("bias", task.bias.float())
        floor = torch.full((len(count),), -torch.inf)
        self.register_buffer(
            "floor", floor if reject is None else prior.floor(count, reject).float()
        )
        means = torch.from_numpy(classifier.examples_).float()
        if not all(x.isfinite().all() for x in (means, self.origin, self.centre, self.weights)):
            raise ValueError(
                "Expected embeddings and a scale within the range of float32, got larger ones. "
                "Divide the embeddings by a constant, and fit again."
            )

    def forward(
        self, query: Float[Tensor, "query dim"]
    ) -> tuple[Float[Tensor, "query way"], Bool[Tensor, " query"]]:
        """Class probabilities, and whether a query is unknown; a query with NaN is."""
        z = (query if self.unit == 1 else query / self.unit) - self.origin
        if self.matrix is not None:
            z = z @ self.matrix
        z = unit(z - self.centre)
        similarity = z @ self.references.mT
        known = (self.references, self.weights, self.bias)
        logits = query_logits(z, *known, power=self.query_power, typical=self.top)
        p = average_softmax(logits, self.std) if self.uncertain else logits.softmax(-1)
        return p, ~(similarity >= self.floor).any(-1)


def export_classifier(
    classifier: FewShotClassifier,
    path: Path,
    *,
    reject: float | None = None,
    about: Mapping[str, Any] | None = None,
) -> float:
    """Write a fitted classifier as an ONNX file; return the largest difference in probability.

    Args:
        classifier: The classifier.
        path: File to write.
        reject: As in `FewShotClassifier.predict`; with `None` no query is unknown.
        about: More facts to keep in the file's metadata, each as JSON, beside `classes`, `reject`
            and `takes`.
    """
    proto = classifier_graph(classifier, reject)
    add_facts(proto, {"takes": "embedding", **(about or {})})
    return write_checked(path, proto, lambda graph: differences(classifier, graph))


def classifier_graph(classifier: FewShotClassifier, reject: float | None) -> "ModelProto":
    """The graph of a fitted classifier, with classes and `reject` in its metadata."""
    graph = ClassifierGraph(classifier, reject).eval()
    proto = trace(
        graph,
        {"query": torch.zeros(2, classifier.n_features_in_)},
        ({0: Dim("query", min=1)},),
        ["probability", "unknown"],
        f"query: float32 embeddings, one row each. {OUTPUTS.format(level(reject))}",
    )
    _add_label(proto, classifier.classes_)
    add_facts(proto, {"classes": classifier.classes_.tolist(), "reject": reject})
    return proto


def level(reject: float | None) -> str:
    """Say how often queries of known classes are called unknown."""
    return "never" if reject is None else f"at {reject:g}"


def add_facts(proto: "ModelProto", facts: Mapping[str, Any]) -> None:
    """Add facts to the metadata of a graph, as JSON."""
    for key, value in facts.items():
        proto.metadata_props.add(key=key, value=json.dumps(value))


def _add_label(proto: "ModelProto", classes: np.ndarray) -> None:
    """Let a graph give the likeliest class itself, text or number, beside its probability."""
    from onnx import helper, numpy_helper

    table = numpy_helper.from_array(_values(classes), "classes")
    index = helper.make_node("ArgMax", ["probability"], ["place"], axis=1, keepdims=0)
    pick = helper.make_node("Gather", ["classes", "place"], ["label"], axis=0)
    dim = proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param
    proto.graph.initializer.append(table)
    proto.graph.node.extend([index, pick])
    proto.graph.output.append(helper.make_tensor_value_info("label", table.data_type, [dim]))


def _values(classes: np.ndarray) -> np.ndarray:
    """Classes as a graph can hold them: texts in UTF-8, whole numbers in int64, or float32."""
    if classes.dtype.kind == "U":
        texts = [text.encode(errors="replace").decode() for text in classes.tolist()]
        return np.array(texts, dtype=object)
    return classes.astype(np.float32 if classes.dtype.kind == "f" else np.int64)


def differences(classifier: FewShotClassifier, graph: "InferenceSession") -> tuple[float, float]:
    """Compare graph and classifier at examples, around and between these, and at zero."""
    first = np.unique(classifier.labels_, return_index=True)[1]
    centres = classifier.examples_[first[:500]]  # an example of each class
    noise = torch.randn(4, *centres.shape, generator=torch.Generator().manual_seed(0)).numpy()
    around = centres + noise * centres.std(0)
    # nearer to one class: halfway may be the origin
    between = (2 * centres + np.roll(centres, 1, axis=0)) / 3
    queries = np.concatenate([centres, between, *around, 0 * centres[:1]]).astype(np.float32)
    exact = classifier.predict_proba(queries.astype(np.float64))
    probability = graph.run(["probability"], {"query": queries})[0]
    single = classifier.predict_proba(queries)
    return float(np.abs(probability - exact).max()), float(np.abs(single - exact).max())
