"""Classes with one example beside classes with many, on the same tasks of unseen classes.

    python benchmarks/unequal.py DATA

DATA, its splits and the rivals are those of `embeddings.py`. Half of the classes of a task have one
example, the others have more. Writes `unequal.csv`.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from embeddings import (
    DATASETS,
    OURS,
    Data,
    Predict,
    Task,
    by_tasks,
    logistic,
    nearest_centroid,
    ours,
    support_vectors,
    validated,
    without_expectation,
)
from rows import append_rows
from torch import Tensor

from varscale.classifier.prior import broad_prior
from varscale.evaluation.metrics import calibration_bins, expected_calibration_error, interval
from varscale.functional import cosine_logits, log_softmax, prototypes

FILE = Path(__file__).with_name("unequal.csv")
WAY, TASKS, MANY = 10, 500, (2, 5, 20)
"""Classes of a task, tasks of a cell, and examples of the classes that have more than one."""


class Unequal(Data):
    """Tasks in which the first half of the classes keep one example."""

    def tasks(self, split: str, way: int, shot: int, tasks: int) -> Iterator[Task]:
        """The first tasks of a cell, some at a time; `shot` is that of the other classes."""
        for support, labels, query, truth in super().tasks(split, way, shot, tasks):
            number = torch.nn.functional.one_hot(labels[0]).cumsum(0)  # of its class so far
            first = number.gather(1, labels[0].unsqueeze(1)).squeeze(1) == 1
            kept = first | (labels[0] >= way // 2)
            yield support[:, kept], labels[:, kept], query, truth


def without_base(data: Data, way: int, shot: int) -> Predict:
    """The default fitted to the examples of the task alone."""
    return ours(data, way, shot, change=lambda prior: broad_prior(prior.dim))


def nearest_cosine(data: Data, way: int, shot: int) -> Predict:
    """The class mean of the largest cosine; probabilities are those of scale 1."""

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        return log_softmax(cosine_logits(query, prototypes(support, labels, way)))

    return predict


def balanced(c: float) -> object:
    """Logistic regression in which classes weigh the same, however many examples they have."""
    return logistic(c).set_params(class_weight="balanced")


def balanced_vectors() -> object:
    """A linear support vector machine in which classes weigh the same; it has no probabilities."""
    return support_vectors().set_params(class_weight="balanced")


METHODS: dict[str, Callable[..., Predict | tuple[Predict, str]]] = {
    OURS: ours,
    "without base classes": without_base,
    "without the expected similarity (M49)": without_expectation,
    "nearest centroid": nearest_centroid,
    "nearest centroid, cosine": nearest_cosine,
    "logistic regression": partial(validated, make=logistic),
    "logistic regression, balanced": partial(validated, make=balanced),
    "logistic regression, whitened, balanced": partial(validated, make=balanced, white=True),
    "support vector machine, balanced": lambda d, w, n: by_tasks(d, balanced_vectors),
}


@dataclass(frozen=True)
class Row:
    """A method in a cell; accuracies and ECE in per cent.

    Attributes:
        many: Examples of the classes that have more than one.
        few_accuracy: Accuracy of queries of classes with one example.
        gain: Accuracy of the default minus this one's, on the same tasks.
        nll_gain: NLL of this one minus that of the default, on the same tasks.
    """

    dataset: str
    method: str
    many: int
    tasks: int
    chosen: str
    accuracy: float
    few_accuracy: float
    nll: float
    ece: float
    gain: float
    gain_ci95: float
    nll_gain: float
    nll_gain_ci95: float


@torch.no_grad()
def score(data: Data, predict: Predict, many: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Accuracy and NLL of each task, the accuracy of classes with one example, the ECE of all."""
    right, nll, few, bins = [], [], [], torch.zeros(3, 15, dtype=torch.float64)
    for support, labels, query, truth in data.tasks("test", WAY, many, TASKS):
        log_p = predict(support, labels, query, WAY)
        top, guess = log_p.max(-1)
        right.append((guess == truth).double().mean(-1))
        nll.append(-log_p.gather(-1, truth.unsqueeze(-1)).double().squeeze(-1).mean(-1))
        few.append((guess == truth)[truth < WAY // 2])
        bins += calibration_bins(top.exp(), guess == truth)
    share = torch.cat(few).double().mean().item()
    return torch.cat(right).numpy(), torch.cat(nll).numpy(), share, expected_calibration_error(bins)


def main() -> None:
    """Score every method in every cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    args = parser.parse_args()
    rows = []
    for name in DATASETS:
        data = Unequal(args.data / f"{name}_minilm.npz")
        for many in MANY:
            default = None
            for method, make in METHODS.items():
                made = make(data, WAY, many)
                predict, chosen = made if isinstance(made, tuple) else (made, "")
                right, nll, few, ece = score(data, predict, many)
                default = default or (right, nll)
                rows.append(
                    Row(
                        name, method, many, TASKS, chosen, 100 * right.mean(), 100 * few,
                        nll.mean(), 100 * ece,
                        *interval(100 * (default[0] - right)), *interval(nll - default[1]),
                    )
                )  # fmt: skip
                print(rows[-1], flush=True)
    FILE.unlink(missing_ok=True)
    append_rows(FILE, rows)


if __name__ == "__main__":
    main()
