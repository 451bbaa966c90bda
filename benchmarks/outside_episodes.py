"""`LogitScale` outside episodes: contrastive pairs, margins and supervised contrast.

    varscale data prepare clinc150 clinc150_minilm.npz
    varscale data prepare omniglot omniglot_28x28.npz
    OMP_NUM_THREADS=1 python benchmarks/outside_episodes.py

Each loss is trained with fixed scales, with a learned weight as CLIP has it (from 1 / 0.07, at most
100), and with `LogitScale()`, from the same initial weights on the same batches, and scored on
classes that were not trained on. Writes `outside_episodes.csv`, row by row: run it again to go on.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import ArcFaceLoss, CosFaceLoss, SupConLoss
from rows import append_rows, read_rows
from torch import Tensor, nn

from varscale import LogitScale
from varscale.backbones import Conv4
from varscale.core.allocator import keep_memory
from varscale.data import Dataset, Split
from varscale.plug import scaled

FILE = Path(__file__).with_name("outside_episodes.csv")
LENGTHS, SHORT, SEEDS, LR = (100, 300, 1000), (100, 300), 3, 1e-3
METHODS = (
    "LogitScale",
    "learned weight",
    "fixed 1",
    "fixed 3",
    "fixed 10",
    "fixed 30",
    "fixed 100",
)


class Weight(nn.Module):
    """A constant, or CLIP's learned weight."""

    def __init__(self, method: str) -> None:
        super().__init__()
        value = math.log(1 / 0.07) if method == "learned weight" else math.log(float(method[6:]))
        self.log = nn.Parameter(torch.tensor([value]), requires_grad=method == "learned weight")

    @property
    def alpha(self) -> Tensor:
        """The scale."""
        return self.log.clamp(max=math.log(100)).exp()

    def forward(self, cosines: Tensor) -> Tensor:
        """Logits."""
        return self.alpha * cosines

    def kl(self) -> Tensor:
        """No prior."""
        return torch.zeros(())


def make_scale(method: str) -> LogitScale | Weight:
    """The scale of a method."""
    return LogitScale() if method == "LogitScale" else Weight(method)


@dataclass(frozen=True)
class Row:
    """One model at one length; accuracy is that of retrieval on new classes, in per cent."""

    experiment: str
    method: str
    seed: int
    steps: int
    scale: float
    accuracy: float
    nll: float


def draw(labels: np.ndarray, seed: int, step: int, classes: int, items: int) -> np.ndarray:
    """Rows of a batch: classes at random, and some items of each."""
    rng = np.random.default_rng((seed, step))
    chosen = rng.choice(np.unique(labels), classes, replace=False)
    return np.concatenate([rng.choice(np.flatnonzero(labels == c), items, False) for c in chosen])


def images(split: Split, rows: np.ndarray) -> Tensor:
    """Items as the backbone takes them."""
    return split.items(torch.from_numpy(rows))


def retrieve(embed: Callable[[Tensor], Tensor], split: Split, alpha: float) -> tuple[float, float]:
    """Share of items whose nearest other item is of their class, and NLL of one item of 50 classes.

    The NLL is that of a cosine classifier at the learned scale, with one reference a class.
    """
    with torch.no_grad():
        rows = np.concatenate(
            [np.flatnonzero(split.labels == c)[:10] for c in np.unique(split.labels)]
        )
        x = torch.cat(
            [embed(images(split, part)) for part in np.array_split(rows, len(rows) // 64)]
        )
        x, labels = F.normalize(x, dim=-1), torch.from_numpy(split.labels[rows])
        cosines = x @ x.T
        cosines.fill_diagonal_(-2)
        hits = labels[cosines.argmax(1)] == labels
        total, count = 0.0, 0
        for number in range(40):
            pair = draw(split.labels[rows], 7, number, 50, 2)
            a, b = x[pair[::2]], x[pair[1::2]]
            total += F.cross_entropy(alpha * a @ b.T, torch.arange(50), reduction="sum").item()
            count += 50
    return 100 * hits.float().mean().item(), total / count


def two_tower(method: str, seed: int) -> Iterator[Row]:
    """Sentences of the same intent find each other in a batch of 40 intents."""
    dataset = Dataset.open("clinc150")
    train, test = dataset["train"], dataset["test"]
    torch.manual_seed(seed)
    left, right, scale = nn.Linear(384, 128), nn.Linear(384, 128), make_scale(method)
    modules = nn.ModuleList([left, right, scale])
    optimizer = torch.optim.Adam([p for p in modules.parameters() if p.requires_grad], lr=LR)
    for step in range(max(LENGTHS)):
        x = images(train, draw(train.labels, seed, step, 40, 2)).float()
        a, b = F.normalize(left(x[::2]), dim=-1), F.normalize(right(x[1::2]), dim=-1)
        logits, target = scale(a @ b.T), torch.arange(40)
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad()
        (loss + scale.kl()).backward()
        optimizer.step()
        if step + 1 in LENGTHS:
            right_count, nll = 0, 0.0
            modules.eval()
            with torch.no_grad():
                for number in range(100):
                    x = images(test, draw(test.labels, 7, number, 40, 2)).float()
                    a, b = F.normalize(left(x[::2]), dim=-1), F.normalize(right(x[1::2]), dim=-1)
                    logits = scale(a @ b.T)
                    right_count += int((logits.argmax(1) == target).sum())
                    nll += F.cross_entropy(logits, target).item() / 100
            modules.train()
            yield Row("two towers, CLINC150", method, seed, step + 1, scale.alpha.item(),
                      right_count / 40, nll)  # fmt: skip


def margin(kind: type) -> Callable[[str, int], Iterator[Row]]:
    """ArcFace or CosFace over the 1,028 training characters of Omniglot."""

    def run(method: str, seed: int) -> Iterator[Row]:
        dataset = Dataset.open("omniglot")
        train, test = dataset["train"], dataset["test"]
        torch.manual_seed(seed)
        network = Conv4(image_size=28, in_channels=1)
        loss_function = kind(
            num_classes=len(np.unique(train.labels)), embedding_size=network.out_dim
        )
        place = {c: n for n, c in enumerate(np.unique(train.labels))}
        if method == "LogitScale":
            loss_function = scaled(loss_function)
        elif method == "learned weight":
            loss_function.weight = Weight(method)
        else:
            loss_function.scale = float(method[6:])
        optimizer = torch.optim.Adam([*network.parameters(), *loss_function.parameters()], lr=LR)
        for step in range(max(SHORT)):
            rows = draw(train.labels, seed, step, 64, 1)
            labels = torch.tensor([place[c] for c in train.labels[rows]])
            if method == "learned weight":
                loss_function.scale = loss_function.weight.alpha
            loss = loss_function(network(images(train, rows)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step + 1 in SHORT:
                scale = loss_function.scale
                alpha = float(torch.as_tensor(getattr(scale, "alpha", scale)).detach())
                network.eval()
                yield Row(f"{kind.__name__.removesuffix('Loss')}, Omniglot", method, seed, step + 1,
                          alpha, *retrieve(network, test, alpha))  # fmt: skip
                network.train()

    return run


def supervised_contrast(method: str, seed: int) -> Iterator[Row]:
    """SupCon on glyphs: 32 letters, two drawings of each."""
    dataset = Dataset.open("glyphs")
    train, test = dataset["train"], dataset["test"]
    torch.manual_seed(seed)
    network = Conv4(image_size=28, in_channels=1)
    loss_function, weight = SupConLoss(), None
    if method == "LogitScale":
        loss_function = scaled(loss_function)
    else:
        weight = Weight(method)
    parameters = [*network.parameters(), *(loss_function.parameters() if weight is None else [])]
    parameters += [weight.log] if weight is not None and weight.log.requires_grad else []
    optimizer = torch.optim.Adam(parameters, lr=LR)
    for step in range(max(SHORT)):
        rows = draw(train.labels, seed, step, 32, 2)
        if weight is not None:
            loss_function.temperature = 1 / weight.alpha
        loss = loss_function(network(images(train, rows)), torch.from_numpy(train.labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step + 1 in SHORT:
            alpha = (loss_function.scale if weight is None else weight).alpha.item()
            network.eval()
            yield Row("SupCon, glyphs", method, seed, step + 1, alpha,
                      *retrieve(network, test, alpha))  # fmt: skip
            network.train()


EXPERIMENTS: dict[str, Callable[[str, int], Iterator[Row]]] = {
    "two towers, CLINC150": two_tower,
    "SupCon, glyphs": supervised_contrast,
    "ArcFace, Omniglot": margin(ArcFaceLoss),
    "CosFace, Omniglot": margin(CosFaceLoss),
}


def main() -> None:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="0/1", help="every n-th run: 0/2 and 1/2 share the work")
    part, parts = (int(number) for number in parser.parse_args().part.split("/"))
    keep_memory()
    plan = [(e, m, seed) for seed in range(SEEDS) for e in EXPERIMENTS for m in METHODS]
    for experiment, method, seed in plan[part::parts]:
        if (experiment, method, seed) in {
            (r.experiment, r.method, r.seed) for r in read_rows(FILE, Row)
        }:
            continue
        rows = list(EXPERIMENTS[experiment](method, seed))
        append_rows(FILE, rows)
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
