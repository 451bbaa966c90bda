"""Every way to classify embeddings from a few examples, on the same tasks of unseen classes.

    python benchmarks/embeddings.py DATA [--episodes 2000] [--cache FOLDER]

DATA is a folder with `banking77_minilm.npz` and `clinc150_minilm.npz`. Whatever is learned is
learned on the classes that a file calls `train`; what is chosen is chosen on its `val` classes; the
tasks are of its `test` classes, the same for all methods. Writes `embeddings.csv` beside this file.
A method that is in the cache is not run again; with `--methods`, the lines of others stay.
"""

import argparse
import csv
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from page import rows as committed
from torch import Tensor

import varscale
from varscale import FewShotClassifier
from varscale.classifier import Prior
from varscale.core.labels import number_classes
from varscale.data import EpisodeSampler
from varscale.data.embeddings import read_items
from varscale.data.mixed import MixedTasks
from varscale.evaluation.metrics import calibration_bins, expected_calibration_error, interval
from varscale.functional import Whitening, log_softmax, normalize, prototypes, squared_euclidean
from varscale.learn import choose_effective_tasks, learn_scaler

DATASETS = ("banking77", "clinc150")
CELLS = [(way, shot) for way in (5, 10, 20) for shot in (1, 2, 5, 10)]
QUERIES, SEEDS, CHUNK = 10, (0, 1, 2), 50
WORTH = (0.125, 0.25, 0.5, 1.0, 2.0)
"""Independent tasks for each training class, to choose from."""
SCALES = [float(s) for s in np.geomspace(1, 100, 25)]
Task = tuple[Tensor, Tensor, Tensor, Tensor]
Predict = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Supports, their labels, queries and ways to log-probabilities, for a batch of tasks."""


class Made(NamedTuple):
    """A way to classify, and what was chosen for it on validation classes."""

    predict: Predict
    chosen: str = ""


class Data:
    """Embeddings of one dataset by split, classes numbered from 0."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, path = name, folder / f"{name}_minilm.npz"
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        self.splits = {}
        for split in ("train", "val", "test"):
            items, classes, _ = read_items(path, split)
            self.splits[split] = torch.from_numpy(items), number_classes(classes)

    def tasks(self, split: str, way: int, shot: int, episodes: int) -> Iterator[Task]:
        """The first tasks of a cell, some at a time."""
        x, y = self.splits[split]
        sampler = EpisodeSampler(y, way, shot, QUERIES, stream=split)
        for start in range(0, episodes, CHUNK):
            rows = sampler.batch(start, min(CHUNK, episodes - start))
            yield x[rows.support], rows.support_labels, x[rows.query], rows.query_labels

    @property
    def n_base(self) -> int:
        """Number of training classes."""
        return int(self.splits["train"][1].max()) + 1


# --- ways to classify ---------------------------------------------------------------------------


def cosines(whitening: Whitening, scale: float) -> Predict:
    """Scaled cosine of mapped embeddings and prototypes."""

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        centres = normalize(prototypes(whitening(support), labels, way))
        return log_softmax(scale * normalize(whitening(query)) @ centres.mT)

    return predict


def fixed(data: Data, seed: int, way: int, shot: int, *, scale: float) -> Made:
    """Plain cosine at a scale."""
    return Made(cosines(Whitening(torch.zeros(384)), scale))


def validated(
    data: Data, seed: int, way: int, shot: int, *, center: bool = False, whiten: bool = False
) -> Made:
    """The scale (and shrinkage) of least NLL on validation tasks of the cell."""
    x, y = data.splits["train"]
    origin = x.mean(0) if center else torch.zeros(384)
    choices = []
    for shrinkage in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99) if whiten else (None,):
        learned = Whitening.learned(x, torch.from_numpy(y), center=False, shrinkage=shrinkage)
        whitening = Whitening(origin, learned.matrix)
        unscaled = cosines(whitening, 1.0)
        total = np.zeros(len(SCALES))
        for support, labels, query, truth in data.tasks("val", way, shot, 100):
            cosine = unscaled(support, labels, query, way)  # up to a constant, which drops out
            for i, scale in enumerate(SCALES):
                log_p = log_softmax(scale * cosine)
                total[i] -= log_p.gather(-1, truth.unsqueeze(-1)).mean().item()
        choices.append((total.min(), SCALES[int(total.argmin())], shrinkage, whitening))
    _, scale, shrinkage, whitening = min(choices, key=lambda choice: choice[0])
    said = f"scale {scale:.1f}" + (f", shrinkage {shrinkage}" if whiten else "")
    return Made(cosines(whitening, scale), said)


@lru_cache(maxsize=16)
def model_of(
    data: Data, seed: int, scaler: str, worth: float | str | None, rate: float, steps: int,
    options: str,
) -> tuple[varscale.ScaledModel, float | None]:  # fmt: skip
    """A scaler learned on tasks of mixed ways and shots of the training classes.

    What the classes are worth, in independent tasks of each, is given, or chosen on validation
    classes: once, with the first seed, or anew with each.
    """
    x, y = data.splits["train"]

    def made(n_tasks: float | None) -> varscale.ScaledModel:
        torch.manual_seed(seed)  # the weights of generators
        given = {} if n_tasks is None else {"kl_weight": 1 / n_tasks}
        return varscale.create(
            backbone="identity",
            backbone_options={"dim": 384},
            metric="cosine",
            scaler=scaler,
            scaler_options={**given, **json.loads(options)},
            shot_offset=0.5,
        )

    if worth == "chosen anew" or (worth == "chosen" and seed == SEEDS[0]):
        numbers = [share * data.n_base for share in WORTH]
        chosen, model = choose_effective_tasks(
            made, numbers, x, y, *data.splits["val"], seed=seed, lr=rate, steps=steps
        )
        return model, chosen / data.n_base
    if worth == "chosen":
        worth = model_of(data, SEEDS[0], scaler, worth, rate, steps, options)[1]
    model = made(None if worth is None else worth * data.n_base)
    learn_scaler(model, x, MixedTasks(y, seed=seed), steps=steps, lr=rate, seed=seed)
    return model, worth


def scaled(
    data: Data, seed: int, way: int, shot: int, *, scaler: str, worth: float | str | None = None,
    rate: float = 0.05, steps: int = 300, **options: object,
) -> Made:  # fmt: skip
    """A scaler of the library; `worth` in independent tasks per training class."""
    given = json.dumps(options, sort_keys=True)
    model, share = model_of(data, seed, scaler, worth, rate, steps, given)

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        return model.predict(support, labels, query, n_way=way)

    return Made(predict, f"C x {share:g}" if isinstance(worth, str) else "")


@lru_cache(maxsize=4)
def learned(data: Data, seed: int, options: str) -> Prior:
    """The scale of an estimator fitted to the training classes."""
    x, y = data.splits["train"]
    return FewShotClassifier(**json.loads(options), random_state=seed).fit(x.numpy(), y).prior_


def estimator(data: Data, seed: int, way: int, shot: int, **options: object) -> Made:
    """`FewShotClassifier` with a scale that was learned on the training classes."""
    prior = learned(data, seed, json.dumps(options, sort_keys=True))

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        references = prior.metric.references(prototypes(support, labels, way))
        return prior.log_probabilities(query, references, torch.full((way,), shot))

    return Made(predict)


def nearest_centroid(data: Data, seed: int, way: int, shot: int) -> Made:
    """scikit-learn's `NearestCentroid`, all tasks at once; it is compared with it on the first."""
    from sklearn.neighbors import NearestCentroid

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        return log_softmax(-squared_euclidean(query, prototypes(support, labels, way)))

    support, labels, query, _ = next(data.tasks("test", way, shot, 1))
    if shot > 2:  # with fewer it warns of a variance that it does not need
        fitted = NearestCentroid().fit(support[0].numpy(), labels[0].numpy())
        ours = predict(support, labels, query, way)[0].argmax(-1).numpy()
        assert (fitted.predict(query[0].numpy()) == ours).all()
    return Made(predict)  # it has no probabilities of its own here: those of scale 1


def one_logistic(c: float, support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
    """One task by logistic regression, in the basis of its supports, which changes nothing."""
    from sklearn.linear_model import LogisticRegression

    basis = torch.linalg.qr(support.double().T).Q
    s, q = (support.double() @ basis).numpy(), (query.double() @ basis).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at large C it stops after its 100 steps
        fitted = LogisticRegression(C=c).fit(s, labels.numpy())
    return torch.from_numpy(fitted.predict_log_proba(q)).float()


def logistic(data: Data, seed: int, way: int, shot: int, *, c: float = 1.0) -> Made:
    """Logistic regression, task by task in two processes."""

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        work = list(zip(support, labels, query, strict=True))
        return torch.stack(pool().starmap(partial(one_logistic, c), work, chunksize=5))

    return Made(predict)


@lru_cache(maxsize=1)
def pool() -> Pool:
    """Two processes of one thread each."""
    return Pool(2, initializer=torch.set_num_threads, initargs=(1,))


def validated_logistic(data: Data, seed: int, way: int, shot: int) -> Made:
    """Logistic regression with the C of least NLL on validation tasks of the cell."""
    losses = {}
    for c in (1.0, 10.0, 100.0, 1000.0):
        predict = logistic(data, seed, way, shot, c=c).predict
        losses[c] = sum(
            -predict(s, ys, q, way).gather(-1, yq.unsqueeze(-1)).mean().item()
            for s, ys, q, yq in data.tasks("val", way, shot, 50)
        )
    best = min(losses, key=losses.__getitem__)
    return logistic(data, seed, way, shot, c=best)._replace(chosen=f"C {best:g}")


PRIOR = {"family": "log-normal", "init": 20.0}
SHARED = {"family": "hierarchical", "init": 20.0}
METHODS: dict[str, tuple[Callable[..., Made], dict[str, object], bool]] = {
    "SVS": (scaled, {"scaler": "svs", "worth": 0.5, **PRIOR}, True),
    "D-SVS, hierarchical": (scaled, {"scaler": "d-svs", "worth": "chosen", **SHARED}, True),
    "D-SVS, hierarchical, chosen anew": (
        scaled, {"scaler": "d-svs", "worth": "chosen anew", **SHARED}, True,
    ),
    "D-SVS, hierarchical, C/2": (scaled, {"scaler": "d-svs", "worth": 0.5, **SHARED}, True),
    "D-SVS, hierarchical, C/4": (scaled, {"scaler": "d-svs", "worth": 0.25, **SHARED}, True),
    "D-SVS, published prior": (scaled, {"scaler": "d-svs", "steps": 2000}, True),
    "D-AVS, published": (scaled, {"scaler": "d-avs", "rate": 1e-3, "steps": 2000}, True),
    "D-AVS, low rank": (
        scaled, {"scaler": "d-avs-low-rank", "worth": 0.5, "init": 20.0}, True,
    ),
    "scale 1": (fixed, {"scale": 1.0}, False),
    "scale 10": (fixed, {"scale": 10.0}, False),
    "validated scale": (validated, {}, False),
    "centred, validated scale": (validated, {"center": True}, False),
    "whitened, validated scale": (validated, {"center": True, "whiten": True}, False),
    "FewShotClassifier()": (estimator, {}, True),
    'FewShotClassifier(scaler="d-svs")': (estimator, {"scaler": "d-svs"}, True),
    "FewShotClassifier, centred SVS": (estimator, {"shrinkage": None}, True),
    "FewShotClassifier, rotated D-SVS": (
        estimator, {"scaler": "d-svs", "shrinkage": 1.0}, True,
    ),
    "nearest centroid": (nearest_centroid, {}, False),
    "logistic regression": (logistic, {}, False),
    "logistic regression, validated C": (validated_logistic, {}, False),
}  # fmt: skip
"""Name, how it predicts, its options, and whether its training has a seed."""


# --- scoring ------------------------------------------------------------------------------------


@torch.no_grad()
def score(
    data: Data, predict: Predict, way: int, shot: int, episodes: int
) -> dict[str, np.ndarray]:
    """Accuracy and NLL of each task, calibration bins of all."""
    accuracy, nll, bins = [], [], torch.zeros(3, 15, dtype=torch.float64)
    for support, labels, query, truth in data.tasks("test", way, shot, episodes):
        log_p = predict(support, labels, query, way)
        top, guess = log_p.max(-1)
        accuracy.append((guess == truth).double().mean(-1))
        nll.append(-log_p.gather(-1, truth.unsqueeze(-1)).double().squeeze(-1).mean(-1))
        bins += calibration_bins(top.exp(), guess == truth)
    return {
        "accuracy": torch.cat(accuracy).numpy(),
        "nll": torch.cat(nll).numpy(),
        "bins": bins.numpy(),
    }


def results(
    data: Data, method: str, cell: tuple[int, int], episodes: int, cache: Path
) -> list[dict]:
    """A method in a cell, one result for each seed."""
    make, options, trained = METHODS[method]
    found = []
    for seed in SEEDS if trained else SEEDS[:1]:
        name = hashlib.sha256(f"{data.sha256}{method}{cell}{seed}{episodes}".encode()).hexdigest()
        path = cache / f"{name[:20]}.npz"
        if not path.exists():
            with torch.enable_grad():
                made = make(data, seed, *cell, **options)
            np.savez(path, **score(data, made.predict, *cell, episodes), chosen=made.chosen)
        found.append(dict(np.load(path)))
    return found


def row(
    data: Data, method: str, cell: tuple[int, int], found: list[dict], others: dict[str, list[dict]]
) -> dict:
    """A line of the table; differences are paired task by task, means over seeds.

    Args:
        data: The dataset.
        method: The method.
        cell: Ways and shots.
        found: Its results, one for each seed.
        others: Results of those that it is compared with.
    """
    mean = over_seeds(found)
    accuracy, half = interval(mean["accuracy"].tolist())
    eces = [expected_calibration_error(torch.from_numpy(f["bins"])) for f in found]
    line = {
        "dataset": data.name,
        "sha256": data.sha256,
        "method": method,
        "way": cell[0],
        "shot": cell[1],
        "episodes": len(mean["accuracy"]),
        "queries": QUERIES,
        "seeds": len(found),
        "chosen": "; ".join(filter(None, (str(f["chosen"]) for f in found))),
        "accuracy": accuracy,
        "ci95": half,
        "nll": float(mean["nll"].mean()),
        "ece": float(np.mean(eces)),
        "ece_worst_seed": max(eces),
        "version": varscale.__version__,
    }
    for other, results in others.items():
        name, reference = other.lower().split(",")[0], over_seeds(results)
        for key in ("accuracy", "nll"):
            gain, gain_half = interval((mean[key] - reference[key]).tolist())
            line |= {f"{key}_over_{name}": gain, f"{key}_over_{name}_ci95": gain_half}
    return line


def over_seeds(found: list[dict]) -> dict[str, np.ndarray]:
    """Accuracy and NLL of each task, means over seeds."""
    return {key: np.mean([f[key] for f in found], axis=0) for key in ("accuracy", "nll")}


def write(name: str, lines: list[dict]) -> None:
    """A CSV file beside this one."""
    with (Path(__file__).parent / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        for line in lines:
            writer.writerow(
                {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}
            )


def main() -> None:
    """Score all methods in all cells."""
    parser = argparse.ArgumentParser(description="Ways to classify embeddings from a few examples.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--cache", type=Path, default=Path("embeddings-cache"))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    args = parser.parse_args()
    args.cache.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in DATASETS:
        data = Data(args.data, name)
        for method in args.methods:
            for cell in CELLS:
                at = partial(results, data, cell=cell, episodes=args.episodes, cache=args.cache)
                others = {name: at(name) for name in ("SVS", "centred, validated scale")}
                rows.append(row(data, method, cell, at(method), others))
            last = [r for r in rows if r["method"] == method and r["dataset"] == name]
            print(
                name,
                method,
                *(f"{100 * r['accuracy']:.2f}/{100 * r['ece']:.1f}" for r in last),
                flush=True,
            )
    kept = [r for r in committed("embeddings.csv") if r["method"] not in args.methods]
    order = [(name, method) for name in DATASETS for method in METHODS]
    rows = sorted(kept + rows, key=lambda r: order.index((r["dataset"], r["method"])))
    write("embeddings.csv", rows)


if __name__ == "__main__":
    main()
