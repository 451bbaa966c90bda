"""Co-training: occasional steps of ordinary classification over all training classes.

TADAM's auxiliary task, for any host: the unconditioned backbone and one linear layer, which is used
in training only.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim import Optimizer

from varscale.core.processes import ALONE, Processes
from varscale.core.random import integers, span, stream_key, uniform
from varscale.core.registry import unknown
from varscale.data import Split
from varscale.hosts import Host
from varscale.learn.optimizers import decay_groups, weights_optimizer

Statistics = Literal["due", "always"]
"""When co-training batches count in the running batch statistics, which evaluation uses.

- `due`: at the steps that train on it. Late in training, when those are few, the statistics are
  almost those of few-shot tasks alone.
- `always`: at every step, as in TADAM's code, which passes the batch through the network whether it
  trains on it or not. Costs a forward pass a step.
"""


@dataclass(frozen=True)
class CotrainingPlan:
    """When to co-train, and on what.

    Args:
        batch_size: Images of a step, drawn with replacement, over all processes.
        decay: Factor of the probability from each stage of training to the next.
        stages: Equally long stages of training.
        offset: Power of `decay` in the first stage: 1 as in TADAM's code, 0 as in its text.
        replace: Take the step instead of the few-shot step, not before it; one reading of the text.
        held_out: Fraction of the training images that is only looked at when validating.
        statistics: See `Statistics`.
    """

    batch_size: int = 64
    decay: float = 0.9
    stages: int = 20
    offset: int = 1
    replace: bool = False
    held_out: float = 0.1
    statistics: Statistics = "due"

    def __post_init__(self) -> None:
        for name, low in (("batch_size", 2), ("stages", 1), ("offset", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise ValueError(f"Expected cotraining {name}, an integer >= {low}, got {value!r}.")
        for name in ("decay", "held_out"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ValueError(f"Expected cotraining {name}, a number in 0..1, got {value!r}.")
        if not isinstance(self.replace, bool):
            raise ValueError(f"Expected cotraining replace, true or false, got {self.replace!r}.")
        if self.statistics not in get_args(Statistics):
            raise unknown("cotraining statistics", self.statistics, get_args(Statistics))

    def probability(self, step: int, steps: int) -> float:
        r"""Probability of an extra step at step $t$ = 0, 1, ... of $T$ (M22).

        $p(t) = 0.9^{\lfloor 20 t / T \rfloor + 1}$

        Example:
            >>> [round(CotrainingPlan().probability(t, 30_000), 4) for t in (0, 1500, 29_999)]
            [0.9, 0.81, 0.1216]
        """
        return float(self.decay ** (step * self.stages // steps + self.offset))


class Cotraining(nn.Module):
    """A linear classifier of all training classes on the unconditioned backbone.

    Args:
        host: Whose backbone is trained.
        split: The training classes.
        plan: When, and on what.
        steps: Steps of the whole training.
        seed: Seed of the layer, of the images held out and of all draws.
        processes: Who shares a batch.
    """

    def __init__(
        self,
        host: Host,
        split: Split,
        plan: CotrainingPlan,
        *,
        steps: int,
        seed: int,
        processes: Processes = ALONE,
    ) -> None:
        super().__init__()
        self.split, self.plan, self.steps, self.seed = split, plan, steps, seed
        self.processes = processes
        classes, self.labels = np.unique(split.labels, return_inverse=True)
        order = uniform(seed, "cotraining/order", 0, 1, len(split))[0].argsort()
        self.held_out, self.rows = np.split(order, [round(plan.held_out * len(order))])
        if not len(self.rows):
            raise ValueError(
                f"All {len(order)} training images are held out, by cotraining held_out="
                f"{plan.held_out}. Hold out fewer."
            )
        self.backbone = host.backbone  # what learns; the host's other weights do not
        self.embed = host.embed_items
        self.head = nn.Linear(host.out_dim, len(classes))
        generator = torch.Generator().manual_seed(stream_key(seed, "cotraining/head")[0])
        nn.init.xavier_uniform_(self.head.weight, generator=generator)
        nn.init.zeros_(self.head.bias)

    def optimizer(
        self, *, lr: float, algorithm: str, momentum: float, weight_decay: float
    ) -> Optimizer:
        """Make an optimiser with its own momentum; the linear layer does not decay."""
        groups = decay_groups(self.backbone.parameters(), weight_decay)
        groups.append({"params": list(self.head.parameters()), "weight_decay": 0.0})
        found = weights_optimizer(groups, lr=lr, algorithm=algorithm, momentum=momentum)
        assert found is not None  # there is a head at least
        return found

    def due(self, step: int) -> bool:
        """Whether a step has an extra step before it."""
        drawn = uniform(self.seed, "cotraining/due", step, 1, 1).item()
        return bool(drawn < self.plan.probability(step, self.steps))

    def batch(self, step: int) -> tuple[Float[Tensor, "batch *item"], Int[Tensor, " batch"]]:
        """Draw this process's share of a step's images, and their classes."""
        bounds = np.full((1, self.plan.batch_size), len(self.rows), dtype=np.uint64)
        drawn = integers(self.seed, "cotraining/batch", span(step, 1), bounds)[0]
        share = self.processes.share(self.plan.batch_size)
        return self._items(self.rows[drawn[share.start : share.stop]])

    def forward(
        self, items: Float[Tensor, "batch *item"], labels: Int[Tensor, " batch"]
    ) -> dict[str, Float[Tensor, ""]]:
        """Mean cross-entropy and accuracy."""
        logits = self.head(self.embed(items.unsqueeze(0))[0])
        hits = (logits.argmax(-1) == labels).float()
        return {"loss": F.cross_entropy(logits, labels), "accuracy": hits.mean()}

    @torch.inference_mode()
    def held_out_accuracy(self) -> float:
        """Accuracy on the held-out images; there must be some."""
        self.eval()
        share = self.processes.share(len(self.held_out))
        hits = torch.zeros(1, dtype=torch.float64)
        for start in range(share.start, share.stop, 64):
            items, labels = self._items(self.held_out[start : min(start + 64, share.stop)])
            device = self.head.weight.device
            accuracy = self(items.to(device), labels.to(device))["accuracy"]
            hits += accuracy.cpu().double() * len(labels)
        self.train()
        return float(self.processes.gather(hits).sum()) / len(self.held_out)

    def _items(self, rows: Int[np.ndarray, " n"]) -> tuple[Tensor, Tensor]:
        return self.split.items(torch.from_numpy(rows)), torch.from_numpy(self.labels[rows])
