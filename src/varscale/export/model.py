"""A model as one ONNX graph: supports, their labels and queries in, probabilities out."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.export import Dim

from varscale.core.episode import Episode
from varscale.core.labels import class_counts
from varscale.export.onnx import trace, write_checked
from varscale.functional import log_softmax
from varscale.hosts import MatchingNetwork, PrototypicalNetwork
from varscale.model import ScaledModel
from varscale.model.head import class_scores

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class FewShotGraph(nn.Module):
    """`ScaledModel.predict` for one task, in operations that an ONNX graph can hold.

    The host is a prototypical or matching network; the number of classes is the largest label plus
    one.
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
        support, query = (host.backbone(items).unsqueeze(0) for items in (support, query))
        n_way: Any = labels.max().item() + 1
        torch._check(n_way >= 2)  # so that tracing knows it is not an empty axis
        given = labels.unsqueeze(0)
        scale = model.scale(support, query)
        references = host.references(support, given, n_way=n_way)
        mean, unshot = scale.q.mean, replace(scale, shot_offset=None)
        logits = class_scores(host, unshot, query, references, given, mean, n_way=n_way)[0]
        missing = (labels != torch.arange(n_way).unsqueeze(1)).all(1)  # classes of probability 0
        if scale.shot_offset is not None:  # it moves scores towards the mean of classes there are
            there = logits.masked_fill(missing, 0).sum(-1, keepdim=True) / (~missing).sum()
            count = class_counts(given, n_way)[0].to(logits)
            logits = scale.at_shots(torch.where(missing, there, logits), count)
        return log_softmax(logits.masked_fill(missing, -torch.inf)).exp()


def export_model(model: ScaledModel, path: Path) -> float:
    """Write a model on a CPU as an ONNX file; return the largest difference in probability."""
    shape = getattr(model.host.backbone, "in_shape", None)
    if shape is None:
        raise ValueError("Expected a backbone that knows its in_shape, got none.")
    graph = FewShotGraph(copy.deepcopy(model).float()).eval()
    values = torch.linspace(0, 1, 10).view(10, *(1 for _ in shape))
    support, query = values.expand(10, *shape).split([6, 4])
    items = Dim("support", min=2)
    proto = trace(
        graph,
        {"support": support, "labels": torch.tensor([0, 0, 1, 1, 1, 2]), "query": query},
        ({0: items}, {0: items}, {0: Dim("query", min=1)}),
        ["probability"],
        "support: float32 items, images from 0 to 1. labels: int64, 0 to ways - 1. query: items. "
        "probability: one row a query, one column a class.",
    )
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "way"
    return write_checked(path, proto, lambda graph: differences(model, graph, shape))


def differences(
    model: ScaledModel, graph: "InferenceSession", shape: tuple[int, ...]
) -> tuple[float, float]:
    """Compare graph and model on tasks of 2 to 20 ways and 1 to 10 shots."""
    single, exact = (copy.deepcopy(model).to(dtype).eval() for dtype in (torch.float, torch.double))
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
        (got,) = graph.run(None, feed)
        difference = max(difference, float(np.abs(got - expected).max()))
        rounding = max(rounding, float(np.abs(rounded - expected).max()))
    return difference, rounding
