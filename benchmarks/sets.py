"""Prediction sets, and rejection of foreign queries, over random divisions of the classes.

    python benchmarks/sets.py DATA [--seeds 16] [--tasks 100]

DATA is a folder with `banking77_minilm.npz`, `clinc150_minilm.npz`, `relations_minilm.npz` and
`clinc150_oos_minilm.npz`.
Each seed deals all classes of a dataset into two halves, base and new; tasks are of new classes, 10
ways, 1 and 5 shots, 10 queries a class. Base classes have at most 60 items.

- `predict_set`: sets of `FewShotClassifier.predict_set`, with a prior learned on all base classes.
  It warns at an error of `least` or less: 1 / (base classes + 1).
- `similarity`: all classes that do not reject a query at a share of `error`, as in
  `FewShotClassifier.is_unknown`; the same prior.
- `LAC`: split conformal prediction with the score 1 - p of the true class, as in MAPIE. The prior
  is learned on one half of the base classes; as many tasks of the other half calibrate the sets.

LAC's quantiles and sets equal those of MAPIE 1.6.0 (`SplitConformalClassifier`, prefit, `lac`) in
Banking77 and CLINC150, both shots, on 20 tasks of seed 0; this script needs no MAPIE.

A query is rejected if its set is empty. On CLINC150 its own out-of-scope queries are foreign to
every task. Writes `sets.csv`; run it again to go on.
"""

import argparse
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rows import append_rows, read_rows
from sklearn.metrics import roc_auc_score
from torch import Tensor

from varscale.classifier import Prior
from varscale.classifier.learner import learn_prior
from varscale.classifier.task import Task, fit_task
from varscale.core.labels import number_classes
from varscale.core.random import uniform
from varscale.data import EpisodeSampler
from varscale.data.embeddings import read_items

FILE = Path(__file__).with_name("sets.csv")
DATASETS = ("banking77", "clinc150", "relations")
FOREIGN = {"clinc150": "clinc150_oos_minilm.npz"}
OURS, SIMILAR, LAC = "predict_set", "similarity", "LAC"
WAY, SHOTS, QUERIES, CHUNK = 10, (1, 5), 10, 20
ERRORS = (0.05, 0.1, 0.2)
SEEDS, TASKS, MOST_ITEMS = 16, 100, 60
Items = tuple[Tensor, np.ndarray]
"""Embeddings, and their classes from 0."""


@dataclass(frozen=True)
class Row:
    """Sets of one method at one error, in one division; shares from 0 to 1.

    Attributes:
        classes: Base classes.
        least: Error up to which the method warns; NaN if there is none such.
        coverage: Queries whose set has the true class.
        size: Mean number of classes in a set.
        empty: Queries whose set is empty: known ones rejected.
        foreign: Foreign queries whose set is empty; NaN without foreign queries, as are the areas.
        auroc_similarity: Area under the curve of the largest similarity, known against foreign.
        auroc_softmax: The same of the largest probability.
        auroc_energy: The same of the log-sum of exponentials of scale times similarity.
    """

    dataset: str
    seed: int
    classes: int
    shot: int
    tasks: int
    error: float
    method: str
    least: float
    coverage: float
    size: float
    empty: float
    foreign: float
    auroc_similarity: float
    auroc_softmax: float
    auroc_energy: float


@dataclass(frozen=True)
class Answers:
    """What a classifier says of queries: (task, query, way), and the true classes if any."""

    similarity: Tensor
    probability: Tensor
    energy: Tensor
    truth: Tensor


# --- data ---------------------------------------------------------------------------------------


def read_classes(folder: Path, name: str) -> Items:
    """All items of a dataset."""
    items, classes, _ = read_items(folder / f"{name}_minilm.npz")
    return torch.from_numpy(items), number_classes(classes)


def select(data: Items, classes: np.ndarray, most: int | None = None) -> Items:
    """Draw at random a limited number of items of each of some classes."""
    x, y = data
    rows = np.flatnonzero(np.isin(y, classes))
    if most is not None:
        rows = rows[uniform(0, "items", 0, 1, len(y))[0][rows].argsort()]
        rows = np.concatenate([rows[y[rows] == c][:most] for c in np.sort(classes)])
    return x[torch.from_numpy(rows)], number_classes(y[rows])


def deal(data: Items, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Base and new classes of a division."""
    n_classes = int(data[1].max()) + 1
    order = uniform(seed, "division", 0, 1, n_classes)[0].argsort()
    return order[: n_classes // 2], order[n_classes // 2 :]


# --- classifiers --------------------------------------------------------------------------------


@torch.no_grad()
def ask(task: Task, query: Tensor, truth: Tensor) -> Answers:
    """Similarities, probabilities and energies of queries."""
    z = task.embed(query)
    similarity = task.similarity(z)
    shots = task.place.count.to(z)
    scale = task.alpha.to(z)[:, None] * shots / (shots + task.prior.shot_offset)  # (task, way)
    energy = (scale.unsqueeze(-2) * similarity).logsumexp(-1)
    return Answers(similarity, task.probabilities(z), energy, truth)


def answer(
    prior: Prior, data: Items, shot: int, tasks: int, seed: int, foreign: Tensor | None = None
) -> tuple[Answers, Answers | None]:
    """Answers to the queries of tasks, and to foreign queries in the same tasks."""
    x, y = data
    sampler = EpisodeSampler(y, min(WAY, int(y.max()) + 1), shot, QUERIES, seed=seed, stream="sets")
    known, strange = [], []
    for start in range(0, tasks, CHUNK):
        rows = sampler.batch(start, min(CHUNK, tasks - start))
        task = fit_task(prior, x[rows.support], rows.support_labels, sampler.n_way)
        known.append(ask(task, x[rows.query], rows.query_labels))
        if foreign is not None:
            strange.append(ask(task, foreign.unsqueeze(0), torch.empty(0)))
    return join(known), join(strange) if strange else None


def join(parts: list[Answers]) -> Answers:
    """Answers of all tasks."""
    names = ("similarity", "probability", "energy", "truth")
    return Answers(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


# --- sets ---------------------------------------------------------------------------------------


def quantile(calibration: Answers, error: float) -> float:
    """LAC's quantile: of n scores 1 - p, the one of rank ceil((n + 1)(1 - error))."""
    true = calibration.probability.gather(-1, calibration.truth.unsqueeze(-1))
    scores = (1 - true.double()).flatten().sort().values
    rank = math.ceil((len(scores) + 1) * (1 - error))
    return float(scores[rank - 1]) if rank <= len(scores) else math.inf


def lac_sets(answers: Answers, bar: float) -> Tensor:
    """Classes whose score 1 - p is at most the quantile."""
    return 1 - answers.probability.double() <= bar


def our_sets(answers: Answers, prior: Prior, shot: int, error: float) -> dict[str, Tensor]:
    """Sets as in `FewShotClassifier.predict_set`, and classes that do not reject a query."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an error below `least`
        count = torch.full((answers.similarity.shape[-1],), shot)
        floor, least = prior.set_thresholds(count, error)
        similar = answers.similarity >= prior.floor(count, error)
    return {OURS: (answers.similarity >= floor) & (answers.probability >= least), SIMILAR: similar}


def areas(known: Answers, foreign: Answers | None) -> list[float]:
    """Areas under the curve of the three scores; a known query should have the larger one."""
    if foreign is None:
        return [math.nan] * 3
    out = []
    for score in (
        lambda a: a.similarity.amax(-1),
        lambda a: a.probability.double().amax(-1),
        lambda a: a.energy,
    ):
        inside, outside = score(known).flatten(), score(foreign).flatten()
        truth = np.repeat([1, 0], [len(inside), len(outside)])
        out.append(float(roc_auc_score(truth, torch.cat([inside, outside]).numpy())))
    return out


def measure(name: str, data: Items, seed: int, tasks: int, foreign: Tensor | None) -> Iterator[Row]:
    """Rows of both methods in one division."""
    base, new = deal(data, seed)
    learn, hold = np.array_split(base, 2)
    fresh, held = select(data, new), select(data, hold, MOST_ITEMS)
    whole, half = (
        learn_prior(*select(data, classes, MOST_ITEMS), seed=seed) for classes in (base, learn)
    )
    for shot in SHOTS:
        calibration, _ = answer(half, held, shot, tasks, seed)
        ours, lacs = (answer(prior, fresh, shot, tasks, seed, foreign) for prior in (whole, half))
        ours_areas, lacs_areas = areas(*ours), areas(*lacs)
        least = whole.conformity.smallest_share(torch.full((WAY,), shot))
        for error in ERRORS:
            bar = quantile(calibration, error)
            kept = [None if a is None else our_sets(a, whole, shot, error) for a in ours]
            kinds = {m: [k and k[m] for k in kept] for m in (OURS, SIMILAR)}
            kinds[LAC] = [None if a is None else lac_sets(a, bar) for a in lacs]
            for method, (known, strange) in kinds.items():
                truth = (lacs if method == LAC else ours)[0].truth.unsqueeze(-1)
                yield Row(
                    name, seed, len(base), shot, tasks, error, method,
                    math.nan if method == LAC else least, share(known.gather(-1, truth)),
                    float(known.double().sum(-1).mean()), share(~known.any(-1)),
                    math.nan if strange is None else share(~strange.any(-1)),
                    *(lacs_areas if method == LAC else ours_areas),
                )  # fmt: skip


def share(values: Tensor) -> float:
    """Share that is true."""
    return float(values.double().mean())


def main() -> None:
    """Measure the divisions that have no rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="divisions")
    parser.add_argument("--tasks", type=int, default=TASKS, help="tasks of a division")
    parser.add_argument("--file", type=Path, default=FILE, help="where the rows go")
    args = parser.parse_args()
    done = {(row.dataset, row.seed) for row in read_rows(args.file, Row)}
    for name in DATASETS:
        data, foreign = read_classes(args.data, name), None
        if name in FOREIGN:
            foreign = torch.from_numpy(read_items(args.data / FOREIGN[name])[0])
        for seed in range(args.seeds):
            if (name, seed) in done:
                continue
            rows = list(measure(name, data, seed, args.tasks, foreign))
            append_rows(args.file, rows)
            print(*rows, sep="\n", flush=True)


if __name__ == "__main__":
    main()
