"""A fitted classifier as one ONNX graph: embeddings in, probabilities and "none of these" out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.export import Dim

from varscale.classifier import FewShotClassifier
from varscale.export.onnx import trace, write_checked
from varscale.functional import log_softmax, query_logits, unit

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class ClassifierGraph(nn.Module):
    """A fitted `FewShotClassifier` as a module in float32, with all constants precomputed."""

    origin: Tensor
    matrix: Tensor | None
    centre: Tensor
    references: Tensor
    weights: Tensor
    floor: Tensor

    def __init__(self, classifier: FewShotClassifier, reject: float | None) -> None:
        super().__init__()
        task, prior = classifier.task_, classifier.prior_
        matrix, count = prior.whitening.matrix, torch.from_numpy(classifier.counts_)
        self.query_power, self.top, self.unit = prior.query_power, prior.top, prior.unit
        self.register_buffer("origin", prior.whitening.mean.float())
        self.register_buffer("matrix", None if matrix is None else matrix.float())
        self.register_buffer("centre", task.place.origin.float())
        self.register_buffer("references", task.place.references.float())
        self.register_buffer("weights", task.weights.float())
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
        logits = query_logits(
            z, self.references, self.weights, power=self.query_power, typical=self.top
        )
        return log_softmax(logits).exp(), ~(similarity >= self.floor).any(-1)


def export_classifier(
    classifier: FewShotClassifier, path: Path, *, reject: float | None = None
) -> float:
    """Write a fitted classifier as an ONNX file; return the largest difference in probability.

    The names of the classes are in the file's metadata, as JSON under `classes`. `reject` is as in
    `FewShotClassifier.predict`; with `None` no query is unknown.
    """
    graph = ClassifierGraph(classifier, reject).eval()
    at = "never" if reject is None else f"at {reject:g}"
    proto = trace(
        graph,
        {"query": torch.zeros(2, classifier.n_features_in_)},
        ({0: Dim("query", min=1)},),
        ["probability", "unknown"],
        "query: float32 embeddings, one row each. probability: one column a class, in the order of "
        f"the metadata's classes. unknown: whether it is none of them, {at}, or has NaN.",
    )
    for key, value in {"classes": classifier.classes_.tolist(), "reject": reject}.items():
        proto.metadata_props.add(key=key, value=json.dumps(value))
    return write_checked(path, proto, lambda graph: differences(classifier, graph))


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
    probability, _ = graph.run(None, {"query": queries})
    single = classifier.predict_proba(queries)
    return float(np.abs(probability - exact).max()), float(np.abs(single - exact).max())
