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
from varscale.functional import log_softmax

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class ClassifierGraph(nn.Module):
    """A fitted `FewShotClassifier` as a module in float32, with all constants precomputed."""

    origin: Tensor
    matrix: Tensor | None
    references: Tensor
    labels: Tensor
    count: Tensor
    weight: Tensor
    factor: Tensor
    floor: Tensor

    def __init__(self, classifier: FewShotClassifier, reject: float | None) -> None:
        super().__init__()
        prior, count = classifier.prior_, torch.from_numpy(classifier.counts_)
        metric, means = prior.metric, torch.from_numpy(classifier.centres_)
        scale = prior.scale(torch.from_numpy(classifier.own_))
        self.host, self.scale, matrix = metric.host, scale, metric.whitening.matrix
        self.register_buffer("origin", metric.whitening.mean.float())
        self.register_buffer("matrix", None if matrix is None else matrix.float())
        self.register_buffer("references", metric.references(means.unsqueeze(0)).float())
        self.register_buffer("labels", torch.arange(len(count)).unsqueeze(0))
        self.register_buffer("count", count.float())
        self.register_buffer("weight", metric.weight.float())
        self.register_buffer("factor", torch.as_tensor(scale.origin * prior.mean).float())
        floor = torch.full((len(count),), -torch.inf)
        self.register_buffer(
            "floor", floor if reject is None else prior.floor(count, reject).float()
        )
        if not all(x.isfinite().all() for x in (means.float(), self.origin, self.factor)):
            raise ValueError(
                "Expected embeddings and a scale within the range of float32, got larger ones. "
                "Divide the embeddings by a constant, and fit again."
            )

    def forward(
        self, query: Float[Tensor, "query dim"]
    ) -> tuple[Float[Tensor, "query way"], Bool[Tensor, " query"]]:
        """Class probabilities, and whether a query is unknown; a query with NaN is."""
        query = query - self.origin
        if self.matrix is not None:
            query = query @ self.matrix
        task = query.unsqueeze(0), self.references, self.labels
        way = self.references.shape[1]
        similarity = self.host.logits(*task, self.weight, n_way=way)[0]
        logits = self.scale.at_shots(self.factor * similarity, self.count)  # linear in alpha
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
    """Compare graph and classifier at class means, around and between these, and at zero."""
    centres = classifier.centres_[:500]
    noise = torch.randn(4, *centres.shape, generator=torch.Generator().manual_seed(0)).numpy()
    around = centres + noise * centres.std(0)
    # nearer to one class: halfway may be the origin
    between = (2 * centres + np.roll(centres, 1, axis=0)) / 3
    queries = np.concatenate([centres, between, *around, 0 * centres[:1]]).astype(np.float32)
    exact = classifier.predict_proba(queries.astype(np.float64))
    probability, _ = graph.run(None, {"query": queries})
    single = classifier.predict_proba(queries)
    return float(np.abs(probability - exact).max()), float(np.abs(single - exact).max())
