"""A cosine classifier in Lightning: `diff lightning.py lightning_scaled.py`."""

import argparse

import torch
import torch.nn.functional as F
from pytorch_lightning import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(LightningModule):
    """Compare an embedding with ten class vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.classes = nn.Linear(32, 16), nn.Parameter(torch.randn(10, 16))

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        """The loss of a batch."""
        x, labels = batch
        cosines = F.normalize(self.embed(x)) @ F.normalize(self.classes).T
        loss = F.cross_entropy(cosines / 0.07, labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, for all parameters."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Train and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    seed_everything(0, verbose=False)
    centres, labels = torch.randn(10, 32), torch.arange(600) % 10
    data = TensorDataset(centres[labels] + torch.randn(600, 32), labels)
    model = Classifier()
    trainer = Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(data, batch_size=60, shuffle=True))
    print(f"loss {trainer.callback_metrics['loss'].item():.3f}\n{model}")


if __name__ == "__main__":
    main()
