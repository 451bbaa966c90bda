"""Ways to classify embeddings from a few examples, on the same tasks of unseen classes.

    python benchmarks/embeddings.py DATA [--only banking77] [--kinds ours rivals parts abroad]

DATA is a folder with `banking77_minilm.npz`, `clinc150_minilm.npz` and `relations_minilm.npz`. What
is learned is learned on the classes that a file calls `train`, what a rival has to choose is chosen
on its `val` classes, and the tasks are of its `test` classes, the same for all methods. *Abroad*,
the prior is learned on the training classes of one dataset, and the tasks are of another.

The scores of every task are kept in `--cache`: run it again to go on. Writes `embeddings.csv` from
all that is there, with differences that are paired task by task.
"""

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from rows import append_rows
from torch import Tensor

from varscale.classifier import Prior, correction, place, task
from varscale.classifier.learner import learn_prior
from varscale.core.labels import number_classes
from varscale.data import EpisodeSampler
from varscale.data.embeddings import read_items
from varscale.evaluation.metrics import calibration_bins, expected_calibration_error, interval
from varscale.functional import log_softmax, normalize, prototypes, squared_euclidean

FILE = Path(__file__).with_name("embeddings.csv")
DATASETS = ("banking77", "clinc150", "relations")
CELLS = [(way, shot) for way in (5, 10, 20) for shot in (1, 2, 5, 10)]
QUERIES, CHUNK = 10, 10
OURS = "FewShotClassifier"
TASKS = {"ours": 2000, "rivals": 500, "slow rivals": 200, "parts": 100, "abroad": 500}
"""Tasks of a cell, by the kind of a method; always the first ones."""
Task = tuple[Tensor, Tensor, Tensor, Tensor]
Predict = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Supports, their labels, queries and ways to log-probabilities, for a batch of tasks."""
Line = tuple[str, str, str, str]
"""Dataset, base, kind and method of a line of the tables."""


class Data:
    """Embeddings of one dataset by split, classes numbered from 0; those of `base` teach."""

    grid: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    """Values of C to choose from."""

    def __init__(self, file: Path, base: str = "train") -> None:
        self.name, self.base, self.splits = file.stem.removesuffix("_minilm"), base, {}
        for split in ("train", "val", "test"):
            items, classes, _ = read_items(file, split)
            self.splits[split] = torch.from_numpy(items), number_classes(classes)

    def tasks(self, split: str, way: int, shot: int, tasks: int) -> Iterator[Task]:
        """The first tasks of a cell, some at a time; fewer ways if there are fewer classes."""
        x, y = self.splits[split]
        sampler = EpisodeSampler(y, min(way, int(y.max()) + 1), shot, QUERIES, stream=split)
        for start in range(0, tasks, CHUNK):
            rows = sampler.batch(start, min(CHUNK, tasks - start))
            yield x[rows.support], rows.support_labels, x[rows.query], rows.query_labels


@lru_cache
def prior_of(data: Data) -> Prior:
    """The prior that the base classes teach."""
    return learn_prior(*data.splits[data.base], seed=0)


# --- ours, and its parts ------------------------------------------------------------------------


def ours(
    data: Data, way: int, shot: int, change: Callable[[Prior], Prior] = lambda p: p
) -> Predict:
    """The classifier, with a changed prior."""
    prior = change(prior_of(data))

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        fitted = task.fit_task(prior, support, labels, way)
        return fitted.probabilities(fitted.embed(query)).log()

    return predict


def at_base_origin(data: Data, way: int, shot: int) -> Predict:
    """The origin stays that of the base classes."""
    inner = ours(data, way, shot)

    def stay(means: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
        centre = means.mean(-2, keepdim=True)
        return torch.zeros_like(centre), torch.zeros_like(centre[..., :1])

    def predict(*given: object) -> Tensor:
        with patch.object(place, "task_origin", stay):
            return inner(*given)

    return predict


def without_correction(data: Data, way: int, shot: int) -> Predict:
    """The class means alone, no probe."""
    inner = ours(data, way, shot)

    def predict(*given: object) -> Tensor:
        with patch.object(correction, "ALLOWANCE", -1e6):
            return inner(*given)

    return predict


def without_expectation(data: Data, way: int, shot: int) -> Predict:
    """A class is not expected to look less similar with fewer examples."""
    inner = ours(data, way, shot)

    def place_all(*given: object) -> place.Place:
        found = place.place_task(*given)
        return replace(found, scatter=torch.full_like(found.scatter, torch.inf))

    def predict(*given: object) -> Tensor:
        with patch.object(task, "place_task", place_all):
            return inner(*given)

    return predict


PARTS = {
    "without the task's origin (M37)": at_base_origin,
    "without the task's variances (M39)": partial(ours, change=lambda p: replace(p, between=0.0)),
    "without the factor of the scale (M39)": partial(ours, change=lambda p: replace(p, spread=0.0)),
    "without the expected similarity (M49)": without_expectation,
    "without the correction (M40)": without_correction,
    "without the query's factor (M41)": partial(ours, change=lambda p: replace(p, query_power=0.0)),
    "the prior as it is": partial(ours, change=lambda p: replace(p, adapts=False)),
}


# --- rivals -------------------------------------------------------------------------------------


def whitened(data: Data, x: Tensor) -> Tensor:
    """Unit vectors in the base classes' own basis: what ours begins with."""
    return normalize(prior_of(data).embed(x))


def one_task(make: Callable[[], object], support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
    """One task by an estimator of scikit-learn, in the basis of its supports if it turns freely."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iterations at large C, few examples a class
        fitted = make().fit(support.numpy(), labels.numpy())
        if hasattr(fitted, "predict_proba"):
            p = fitted.predict_proba(query.numpy()).clip(1e-12)
        else:  # answers alone
            p = np.eye(int(labels.max()) + 1)[fitted.predict(query.numpy())].clip(1e-12)
    return torch.from_numpy(np.log(p / p.sum(1, keepdims=True))).float()


def rotated(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """The same in the basis of the supports: equal for logistic regression, better for LDA."""
    basis = torch.linalg.qr(support.double().T).Q
    return support.double() @ basis, query.double() @ basis


def by_tasks(
    data: Data, make: Callable[[], object], *, white: bool = False, turn: bool = True
) -> Predict:
    """An estimator of scikit-learn, task by task."""

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        if white:
            support, query = whitened(data, support), whitened(data, query)
        out = []
        for s, y, q in zip(support, labels, query, strict=True):
            s, q = rotated(s, q) if turn else (s.double(), q.double())
            out.append(one_task(make, s, y, q))
        return torch.stack(out)

    return predict


def validated(
    data: Data, way: int, shot: int, *, make: Callable[[float], object], white: bool = False
) -> tuple[Predict, str]:
    """The C of least NLL on validation tasks of the cell, or of as many ways as there are."""
    losses = {}
    for c in data.grid:
        predict = by_tasks(data, partial(make, c), white=white)
        losses[c] = sum(
            -predict(s, ys, q, way).gather(-1, yq.unsqueeze(-1)).mean().item()
            for s, ys, q, yq in data.tasks("val", way, shot, 20)
        )
    best = min(losses, key=losses.__getitem__)
    return by_tasks(data, partial(make, best), white=white), f"C {best:g}"


def logistic(c: float) -> object:
    """Logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c)


def calibrated() -> object:
    """Logistic regression with a temperature by cross-validation."""
    from sklearn.calibration import CalibratedClassifierCV

    return CalibratedClassifierCV(logistic(100.0), method="temperature", cv=2)


def discriminant() -> object:
    """Linear discriminants with the shrinkage of Ledoit and Wolf."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")


def neighbours(shot: int) -> object:
    """Nearest neighbours by the cosine; as many as examples of a class."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(n_neighbors=shot, metric="cosine", weights="distance")


def support_vectors() -> object:
    """A linear support vector machine; it has no probabilities."""
    from sklearn.svm import SVC

    return SVC(kernel="linear", C=10.0)


def nearest_centroid(data: Data, way: int, shot: int) -> Predict:
    """scikit-learn's `NearestCentroid`, all tasks at once; probabilities are those of scale 1."""

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        return log_softmax(-squared_euclidean(query, prototypes(support, labels, way)))

    return predict


RIVALS: dict[str, tuple[str, int, Callable[..., Predict | tuple[Predict, str]]]] = {
    "nearest centroid": ("rivals", 1, nearest_centroid),
    "logistic regression, validated C": ("rivals", 1, partial(validated, make=logistic)),
    "logistic regression, whitened, validated C": (
        "rivals", 1, partial(validated, make=logistic, white=True)),
    "k nearest neighbours": (
        "rivals", 1, lambda d, w, n: by_tasks(d, partial(neighbours, n), turn=False)),
    "support vector machine": ("slow rivals", 1, lambda d, w, n: by_tasks(d, support_vectors)),
    "logistic regression, temperature by CV": (
        "slow rivals", 2, lambda d, w, n: by_tasks(d, calibrated)),
    "linear discriminants, shrunk": (
        "slow rivals", 2, lambda d, w, n: by_tasks(d, discriminant)),
}  # fmt: skip
"""Name, kind, least number of shots, and how it predicts."""


# --- scoring ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A method in a cell; accuracies and ECE in per cent.

    Attributes:
        base: Dataset whose training classes taught.
        gain: Accuracy of the default minus this one's, on the same tasks.
        nll_gain: NLL of this one minus that of the default, on the same tasks.
    """

    dataset: str
    base: str
    kind: str
    method: str
    way: int
    shot: int
    tasks: int
    chosen: str
    accuracy: float
    accuracy_ci95: float
    nll: float
    nll_ci95: float
    ece: float
    gain: float
    gain_ci95: float
    nll_gain: float
    nll_gain_ci95: float


@torch.no_grad()
def score(
    data: Data, predict: Predict, way: int, shot: int, tasks: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Accuracy and NLL of each task, and the ECE of all."""
    accuracy, nll, bins = [], [], torch.zeros(3, 15, dtype=torch.float64)
    for support, labels, query, truth in data.tasks("test", way, shot, tasks):
        log_p = predict(support, labels, query, way)
        top, guess = log_p.max(-1)
        accuracy.append((guess == truth).double().mean(-1))
        nll.append(-log_p.gather(-1, truth.unsqueeze(-1)).double().squeeze(-1).mean(-1))
        bins += calibration_bins(top.exp(), guess == truth)
    return torch.cat(accuracy).numpy(), torch.cat(nll).numpy(), expected_calibration_error(bins)


def make_plan(names: list[str], kinds: list[str]) -> Iterator[Line]:
    """Every line of the tables."""
    for kind in kinds:
        for name in names:
            if kind == "ours":
                yield name, name, kind, OURS
            for method, (which, _, _) in RIVALS.items():
                if kind == which:
                    yield name, name, kind, method
            for method in PARTS if kind == "parts" else ():
                yield name, name, kind, method
            for base in DATASETS if kind == "abroad" else ():
                if base != name:
                    yield name, base, kind, OURS
                    yield name, base, kind, "the prior as it is"


def main() -> None:
    """Score what is not in the cache, then write all that is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="*", default=list(DATASETS), help="datasets")
    parser.add_argument("--kinds", nargs="*", default=list(TASKS), help="kinds of methods")
    parser.add_argument("--cache", type=Path, default=Path("embeddings-cache"))
    args = parser.parse_args()
    data = {name: Data(args.data / f"{name}_minilm.npz") for name in DATASETS}
    fill_cache(args.cache, data, make_plan(args.only, args.kinds), TASKS)
    FILE.unlink(missing_ok=True)
    append_rows(FILE, list(read_cache(args.cache, make_plan(list(DATASETS), list(TASKS)))))


def fill_cache(
    cache: Path, data: dict[str, Data], plan: Iterable[Line], tasks: dict[str, int]
) -> None:
    """Score what is not in the cache; a line's dataset and base are keys of the data."""
    cache.mkdir(parents=True, exist_ok=True)
    for name, base, kind, method in plan:
        for way, shot in CELLS:
            path = cache / "-".join([name, base, kind, method, f"{way}w{shot}s.npz"])
            if path.exists() or (method in RIVALS and shot < RIVALS[method][1]):
                continue
            make = RIVALS[method][2] if method in RIVALS else PARTS.get(method, ours)
            made = make(data[base], way, shot)
            predict, chosen = made if isinstance(made, tuple) else (made, "")
            accuracy, nll, ece = score(data[name], predict, way, shot, tasks[kind])
            np.savez(path, accuracy=accuracy, nll=nll, ece=ece, chosen=chosen)
            print(path.stem, f"{100 * accuracy.mean():.2f} {nll.mean():.4f} {ece:.4f}", flush=True)


def read_cache(cache: Path, plan: Iterable[Line]) -> Iterator[Row]:
    """Rows of all that is cached, with differences paired task by task."""
    for name, base, kind, method in plan:
        for way, shot in CELLS:
            cell = f"{way}w{shot}s.npz"
            path = cache / "-".join([name, base, kind, method, cell])
            if not path.exists():
                continue
            found = np.load(path)
            default = np.load(cache / "-".join([name, name, "ours", OURS, cell]))
            accuracy, nll = found["accuracy"], found["nll"]
            yield Row(
                name, base, kind, method, way, shot, len(accuracy), str(found["chosen"]),
                *interval(100 * accuracy), *interval(nll), 100 * float(found["ece"]),
                *interval(100 * (default["accuracy"][: len(accuracy)] - accuracy)),
                *interval(nll - default["nll"][: len(nll)]),
            )  # fmt: skip


if __name__ == "__main__":
    main()
