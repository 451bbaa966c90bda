"""A fitted classifier as one ONNX graph: embeddings in, probabilities and "none of these" out."""

import json
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.export import Dim

from varscale.estimator import FewShotClassifier
from varscale.files import write_whole
from varscale.functional import log_softmax, normalize
from varscale.onnx_graph import check_close, session, traced
from varscale.shots import tempered


class ClassifierGraph(nn.Module):
    """What a fitted `FewShotClassifier` computes, in float32, with all that stays computed before.

    Args:
        classifier: The classifier.
        reject: As for its `predict`; `None` never calls a query unknown.
    """

    origin: Tensor
    matrix: Tensor | None
    centres: Tensor
    factor: Tensor
    floor: Tensor

    def __init__(self, classifier: FewShotClassifier, reject: float | None) -> None:
        super().__init__()
        scale, count = classifier.scale_, torch.from_numpy(classifier.counts_)
        centres = normalize(scale.metric.whitening(torch.from_numpy(classifier.centres_)))
        matrix = scale.metric.whitening.matrix
        floor = torch.full((len(count),), -torch.inf)
        self.register_buffer("origin", scale.metric.whitening.mean.float())
        self.register_buffer("matrix", None if matrix is None else matrix.float())
        self.register_buffer("centres", (scale.metric.weight * centres).float().mT.contiguous())
        self.register_buffer("factor", scale.at_shots(count.double()).float().unsqueeze(0))
        self.register_buffer("floor", floor if reject is None else scale.floor(count, reject))

    def forward(
        self, query: Float[Tensor, "query dim"]
    ) -> tuple[Float[Tensor, "query way"], Bool[Tensor, " query"]]:
        """Probabilities of the classes, and whether a query belongs to none of them."""
        query = query - self.origin
        if self.matrix is not None:
            query = query @ self.matrix
        similarity = normalize(query) @ self.centres
        unknown = (similarity < self.floor).all(-1)
        return log_softmax(tempered(similarity, self.factor)).exp(), unknown


def export_classifier(
    classifier: FewShotClassifier, path: Path, *, reject: float | None = None
) -> float:
    """Write a fitted classifier as an ONNX file, run it, and return its largest difference.

    The names of the classes are in the file's metadata, as JSON under `classes`.

    Args:
        classifier: The classifier.
        path: File to write.
        reject: Share of queries of known classes that the output `unknown` may hold; `None` for
            a graph that never says so.
    """
    graph = ClassifierGraph(classifier, reject).eval()
    proto = traced(
        graph,
        {"query": torch.from_numpy(classifier.centres_).float().repeat(2, 1)},
        ({0: Dim("query", min=1)},),
        ["probability", "unknown"],
        "query: float32 embeddings, one row each. probability: one column a class, in the order of "
        f"the metadata's classes. unknown: whether it is none of them, at {reject}.",
    )
    for key, value in {"classes": classifier.classes_.tolist(), "reject": reject}.items():
        proto.metadata_props.add(key=key, value=json.dumps(value))
    content = bytes(proto.SerializeToString())
    difference = compared(classifier, content)
    check_close(difference)
    write_whole(path, content)
    return difference


def compared(classifier: FewShotClassifier, content: bytes) -> float:
    """Largest difference of a probability, over class means, what lies between, and zero."""
    centres = classifier.centres_[:1000]
    between = (centres + np.roll(centres, 1, axis=0)) / 2
    queries = np.concatenate([centres, between, 0 * centres[:1]]).astype(np.float32)
    probability, _ = session(content).run(None, {"query": queries})
    return float(np.abs(probability - classifier.predict_proba(queries.astype(np.float64))).max())
