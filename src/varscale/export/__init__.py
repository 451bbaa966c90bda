"""Export to ONNX: one graph builder for trained models and fitted classifiers.

Every graph is run and compared with its model before it is written. Nothing here trains.
"""

from varscale.export.classifier import export_classifier
from varscale.export.items import export_items
from varscale.export.model import export_model

__all__ = ["export_classifier", "export_items", "export_model"]
