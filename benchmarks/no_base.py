"""A few examples of each class and nothing else: no base classes to learn a scale from.

    python benchmarks/no_base.py DATA [--episodes 200]

Every method sees the examples of a task alone, except the last, which has a scale that was learned
on training classes. Tasks are of the test classes, the same for all. Writes `no_base.csv`.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from embeddings import DATASETS, QUERIES, Data, Predict, score, write
from rejection import base_scale
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from torch import Tensor

import varscale
from varscale import FewShotClassifier
from varscale.evaluation.metrics import expected_calibration_error, interval

CELLS = [(way, shot) for way in (2, 5, 10, 20) for shot in (2, 5, 10)]
OURS = "FewShotClassifier()"


def searched(shot: int) -> LogisticRegressionCV:
    """Logistic regression that chooses its C by folds of the examples, for the least NLL."""
    return LogisticRegressionCV(
        Cs=[1.0, 10.0, 100.0, 1000.0],
        cv=min(shot, 5),
        scoring="neg_log_loss",
        l1_ratios=(0.0,),
    )


def methods(data: Data) -> dict[str, Callable[[int], ClassifierMixin]]:
    """Classifiers by name; they are made for a number of shots."""
    scale = base_scale(data, ("train",))
    return {
        OURS: lambda shot: FewShotClassifier(),
        "FewShotClassifier(center=False)": lambda shot: FewShotClassifier(center=False),
        "FewShotClassifier(prior=20.0)": lambda shot: FewShotClassifier(prior=20.0),
        "logistic regression": lambda shot: LogisticRegression(),
        "logistic regression, C by folds": searched,
        "FewShotClassifier(prior=base.prior_)": lambda shot: FewShotClassifier(prior=scale),
    }


def one_by_one(make: Callable[[int], ClassifierMixin], shot: int) -> Predict:
    """A classifier that is fitted anew to every task."""

    def predict(support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
        answers = []
        for s, y, q in zip(support.numpy(), labels.numpy(), query.numpy(), strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # at large C it stops after its 100 steps
                fitted = make(shot).fit(s, y)
            answers.append(np.log(fitted.predict_proba(q).astype(np.float64) + 1e-12))
        return torch.from_numpy(np.stack(answers))

    return predict


def main() -> None:
    """Score all methods in all cells."""
    parser = argparse.ArgumentParser(description="A few examples of each class, nothing else.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--episodes", type=int, default=200)
    args = parser.parse_args()
    lines = []
    for name in DATASETS:
        data = Data(args.data, name)
        makers = methods(data)
        for way, shot in CELLS:
            at = partial(score, data, way=way, shot=shot, episodes=args.episodes)
            found = {method: at(one_by_one(make, shot)) for method, make in makers.items()}
            for method, result in found.items():
                bins = torch.from_numpy(result["bins"])
                accuracy, half = interval(result["accuracy"].tolist())
                gain, gain_half = interval((result["nll"] - found[OURS]["nll"]).tolist())
                lines.append(
                    {
                        "dataset": name,
                        "sha256": data.sha256,
                        "method": method,
                        "way": way,
                        "shot": shot,
                        "episodes": args.episodes,
                        "queries": QUERIES,
                        "accuracy": accuracy,
                        "ci95": half,
                        "expected": float(bins[1].sum() / bins[0].sum()),
                        "nll": float(result["nll"].mean()),
                        "nll_over_ours": gain,
                        "nll_over_ours_ci95": gain_half,
                        "ece": expected_calibration_error(bins),
                        "version": varscale.__version__,
                    }
                )
            print(*(f"{k}: {v}" for k, v in lines[-len(makers)].items()), flush=True)
    write("no_base.csv", lines)


if __name__ == "__main__":
    main()
