"""What `varscale check` says, against what is true: labels, what to label next, accuracy to expect.

    python benchmarks/check.py DATA [--only banking77] [--parts labels next accuracy]

DATA is a folder with `banking77_minilm.npz`, `clinc150_minilm.npz`, `relations_minilm.npz`. Priors
are learned on the classes that a file calls `train`; constants were chosen on `train` and `val`
classes (see docs/check.md), and what is written here comes from `test` classes alone. The rival
needs `pip install cleanlab`. Writes `check.csv`, one line for each measurement.
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from embeddings import Data, prior_of
from rows import append_rows, read_rows

from varscale import FewShotClassifier

FILE = Path(__file__).with_name("check.csv")
DATASETS = ("banking77", "clinc150", "relations")
WAY, FLIPPED = 20, 0.1
PENALTIES = (1.0, 10.0, 100.0)
SCORES = ("self_confidence", "normalized_margin")
STARTS, ROUNDS, BATCH, POOL = 20, 5, 10, 1500
FEW, MANY = 3, 10
TASKS = {"labels": 40, "next": STARTS, "accuracy": 200}


@dataclass(frozen=True)
class Row:
    """One measurement of one task.

    Attributes:
        part: What is measured: `labels` (AUROC of wrong labels), `next` (accuracy after labelling),
            `accuracy` (that with more examples; `value` is true, the others are told).
        way: Classes.
        shot: Examples of each class at the beginning.
    """

    part: str
    dataset: str
    task: int
    method: str
    way: int
    shot: int
    value: float
    told: float = 0.0
    low: float = 0.0
    high: float = 0.0


def draw(
    data: Data, way: int, shot: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Examples of some test classes, and all other items of them."""
    x, y = data.splits["test"]
    rows: list[list[int]] = [[], []]
    for c in rng.permutation(int(y.max()) + 1)[:way]:
        order = rng.permutation(np.flatnonzero(y == c))
        rows[0] += order[:shot].tolist()
        rows[1] += order[shot:].tolist()
    few, rest = (np.array(part) for part in rows)
    return x.numpy()[few], y[few], x.numpy()[rest], y[rest]


def judge_labels(data: Data, task: int) -> Iterator[Row]:
    """AUROC of labels that were changed at random, ours and cleanlab's."""
    from cleanlab.rank import get_label_quality_scores
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    for shot in (5, 10):
        rng = np.random.default_rng([1, shot, task])
        x, truth, _, _ = draw(data, WAY, shot, rng)
        _, truth = np.unique(truth, return_inverse=True)
        y, way = truth.copy(), int(truth.max()) + 1
        flipped = rng.permutation(len(y))[: round(FLIPPED * len(y))]
        y[flipped] = (y[flipped] + rng.integers(1, way, len(flipped))) % way
        wrong, row = y != truth, ("labels", data.name, task)
        quality = FewShotClassifier(prior=prior_of(data)).fit(x, y).label_quality()
        yield Row(*row, "varscale", way, shot, roc_auc_score(wrong, -quality))
        folds = StratifiedKFold(5, shuffle=True, random_state=task)
        for c in PENALTIES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # classes of fewer examples than folds
                p = cross_val_predict(
                    LogisticRegression(C=c), x, y, cv=folds, method="predict_proba"
                )
            for score in SCORES:
                quality = get_label_quality_scores(y, p, method=score)
                auroc = roc_auc_score(wrong, -quality)
                yield Row(*row, f"cleanlab, C {c:g}, {score}", way, shot, auroc)


def label_next(data: Data, task: int) -> Iterator[Row]:
    """Accuracy after 50 labels: ours, random, and the least certain."""
    for way in (10, 25):
        rng = np.random.default_rng([2, way, task])
        x, y, rest, truth = draw(data, way, 1, rng)
        order = rng.permutation(len(rest))
        pool, test = order[: min(POOL, len(order) // 2)], order[len(order) // 2 :]
        shuffled = rng.permutation(len(pool))
        for method in ("random", "varscale", "least certain"):
            chosen = np.zeros(0, dtype=int)
            for turn in range(ROUNDS + 1):
                clf = FewShotClassifier(prior=prior_of(data))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # one example of each class at first
                    known = pool[chosen]
                    clf.fit(np.concatenate([x, rest[known]]), np.concatenate([y, truth[known]]))
                if turn == ROUNDS:
                    break
                left = np.setdiff1d(np.arange(len(pool)), chosen)
                if method == "random":
                    new = shuffled[turn * BATCH : (turn + 1) * BATCH]
                elif method == "varscale":
                    new = left[clf.next_to_label(rest[pool[left]], BATCH)]
                else:
                    new = left[clf.predict_proba(rest[pool[left]]).max(1).argsort()[:BATCH]]
                chosen = np.concatenate([chosen, new])
            accuracy = clf.score(rest[test], truth[test])
            yield Row("next", data.name, task, method, len(clf.classes_), 1, accuracy)


def tell_accuracy(data: Data, task: int) -> Iterator[Row]:
    """Accuracy at 10 shots, told from 3, and the truth on all items that remain."""
    rng = np.random.default_rng([3, task])
    way = int(rng.integers(5, 21))
    x, y, rest, truth = draw(data, way, MANY, rng)
    few = np.arange(len(y)) % MANY < FEW
    prior = prior_of(data)
    told = FewShotClassifier(prior=prior).fit(x[few], y[few]).expected_accuracy(MANY - FEW)
    value = FewShotClassifier(prior=prior).fit(x, y).score(rest, truth)
    yield Row("accuracy", data.name, task, "varscale", way, FEW, value, *told)


MEASURES = {"labels": judge_labels, "next": label_next, "accuracy": tell_accuracy}


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="*", default=list(DATASETS), help="datasets")
    parser.add_argument("--parts", nargs="*", default=list(MEASURES), help="what to measure")
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = {(row.part, row.dataset, row.task) for row in read_rows(args.out, Row)}
    for part in args.parts:
        for name in args.only:
            data = Data(args.data / f"{name}_minilm.npz")
            for task in range(TASKS[part]):
                if (part, name, task) not in done:
                    append_rows(args.out, list(MEASURES[part](data, task)))


if __name__ == "__main__":
    main()
