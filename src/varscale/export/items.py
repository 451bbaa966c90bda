"""A classifier of items as one ONNX graph, with its embedder where a graph can hold that."""

from dataclasses import asdict, dataclass
from pathlib import Path

from varscale.export.classifier import export_classifier
from varscale.export.pictures import export_pictures, picture_embedder
from varscale.items.columns import Kind
from varscale.items.embedders.base import taken_by
from varscale.items.model import ItemModel

HELD = ("run", "onnx")
"""Embedders that a graph can hold, if they take pictures."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        item: Shape of what the graph takes: an embedding, or a picture.
        takes: What the classifier was fitted to; `None` for texts or pictures.
        difference: Largest difference in probability from the model.
    """

    item: list[int]
    takes: Kind | None
    difference: float


def can_hold(spec: str) -> bool:
    """Whether a graph can hold this embedder, if it takes pictures."""
    return spec.partition(":")[0] in HELD


def export_items(
    model: ItemModel,
    path: Path,
    *,
    reject: float | None = None,
    fitted: dict[str, str] | None = None,
) -> Exported:
    """Write a classifier of items as an ONNX file.

    The graph takes pictures if the model's embedder does and a graph can hold it; otherwise it
    takes embeddings, and the metadata names the embedder that makes them.

    Args:
        model: The classifier; its embedder is needed only if a graph can hold it.
        path: File to write.
        reject: As in `FewShotClassifier.predict`; with `None` no item is unknown.
        fitted: `spec` and `identity` of the embedder; by default those of the model's.
    """
    embedder = model.embedder
    if fitted is None and embedder is not None:
        fitted = {"spec": embedder.spec, "identity": embedder.identity}
    about = {"columns": asdict(model.columns), "embedder": fitted}
    if (first := picture_embedder(embedder)) is not None:
        difference = export_pictures(model.classifier, first, path, reject=reject, about=about)
        return Exported(list(first.shape), "image", difference)
    takes: Kind | None = "embedding"
    if fitted is not None:
        takes = taken_by(fitted["spec"]) if embedder is None else embedder.takes
    difference = export_classifier(
        model.classifier, path, reject=reject, about={**about, "takes": takes}
    )
    return Exported([model.classifier.n_features_in_], takes, difference)
