"""Trained runs as embedders."""

from pathlib import Path
from typing import Any

import numpy as np

from varscale.core.files import file_hash
from varscale.data.images import decode_picture
from varscale.items.embedders.base import EMBEDDERS, Embedder


@EMBEDDERS.register("run")
class TrainedRun(Embedder):
    """Pictures, by the best model of a run of `varscale train`."""

    needs = "RUN"
    takes = "image"

    @classmethod
    def executes(cls, rest: str) -> bool:
        """A run with members from outside imports their modules."""
        from varscale.runs.config_files import read_config
        from varscale.runs.run import CONFIG

        return bool(read_config(Path(rest) / CONFIG).imports)

    def __init__(self, run: str) -> None:
        from varscale.runs import Run  # brings torch

        opened = Run.open(Path(run))
        model = opened.model()
        shape = getattr(model.host.backbone, "in_shape", None)
        if model.host.conditioned or shape is None or len(shape) != 3:
            raise ValueError(
                "Expected a run that embeds images one by one, got one with "
                f"{type(model.host).__name__} and {type(model.host.backbone).__name__}."
            )
        self.host, self.shape = model.host, shape
        weights = sorted((opened.path / "best").rglob("*.safetensors"))
        self.identity = file_hash(weights[-1])

    def prepare(self, content: str | bytes, where: str) -> Any:
        """Decode a picture at the size that the run was trained on."""
        assert isinstance(content, bytes)
        channels, size, _ = self.shape
        return decode_picture(content, where, size, grey=channels == 1)

    def embed(self, items: list[Any]) -> np.ndarray:
        """Embed decoded pictures."""
        import torch

        with torch.inference_mode():
            pixels = torch.from_numpy(np.stack(items))
            return np.asarray(self.host.embed_items(pixels.unsqueeze(0))[0].float().numpy())
