"""A scaler of your own, outside the package: one scale per group of dimensions.

python examples/own_scaler.py
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal

import varscale
from varscale import learn
from varscale.data import GaussianTasks
from varscale.scalers import SCALERS, Scaler


@SCALERS.register("grouped")
class Grouped(Scaler):
    """A scale for each of a few groups of neighbouring dimensions.

    Args:
        dim: Embedding size.
        groups: Number of groups; must divide `dim`.
        init: Start of every mean.
        sigma: Every standard deviation.
    """

    local = False  # the same for all tasks

    def __init__(
        self, dim: int, *, groups: int = 4, init: float = 10.0, sigma: float = 0.2
    ) -> None:
        super().__init__(size=dim, lr=0.1, prior_sigma=float(dim), kl_weight=0.01)
        self.loc = nn.Parameter(torch.full((groups,), init))
        self.sigma = sigma

    def forward(self, task: Float[Tensor, "*task dim"]) -> Normal:
        """The group means, each repeated over its dimensions."""
        loc = self.loc.repeat_interleave(self.size // len(self.loc)).expand(task.shape)
        return Normal(loc, torch.full_like(loc, self.sigma))


def main() -> None:
    """Learn on tasks of which the first quarter of the dimensions tells classes apart."""
    spread = torch.tensor([1.5, 0.2, 0.2, 0.2]).repeat_interleave(8)
    tasks = GaussianTasks(spread=spread, noise=torch.ones(32))
    model = varscale.create(
        backbone="identity", backbone_options={"dim": 32}, scaler="grouped", metric="cosine"
    )
    optimizers = learn.optimizers(model, queries_per_task=75)
    for step in range(100):
        model.loss(tasks.batch(8 * step, 8), index=8 * step).total.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    alpha = model.scaler(torch.zeros(32)).mean.view(4, 8)[:, 0]
    print("scale of each group:", [round(x, 1) for x in alpha.tolist()])


if __name__ == "__main__":
    main()
