"""What a fitted classifier says about its labels, its classes and the next ones to label."""

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from varscale.classifier.advice import Expected, expected_accuracies, nearest, next_to_label
from varscale.classifier.left_out import Judged, judge, left_out_probabilities
from varscale.classifier.prior import Prior
from varscale.classifier.task import Task


class Adviser:
    """Methods of `FewShotClassifier` that judge its examples by each other (M45 to M48)."""

    prior_: Prior
    task_: Task
    classes_: np.ndarray
    examples_: np.ndarray
    labels_: np.ndarray
    names_: np.ndarray | None

    def _queries(self, X: ArrayLike) -> np.ndarray:
        """Check queries; the estimator does."""
        raise NotImplementedError

    def _own(self) -> tuple[Tensor, Tensor]:
        """The examples and their classes."""
        return torch.from_numpy(self.examples_), torch.from_numpy(self.labels_)

    def leave_one_out(self) -> np.ndarray:
        """Probability of each class for each example, as if fitted without it (M45).

        An only example of its class stays in. Raises ValueError if that holds for all of them.
        """
        check_is_fitted(self, "task_")
        out = np.empty((len(self.examples_), len(self.classes_)), self.examples_.dtype)
        for part, log_p in left_out_probabilities(self.task_, *self._own()):
            out[part] = log_p.exp().numpy()
        return out

    def judge_examples(self) -> Judged:
        """What the others say of each example: quality of its label, better class, confusions."""
        check_is_fitted(self, "task_")
        return judge(self.task_, *self._own())

    def label_quality(self) -> np.ndarray:
        """Probability of each example's label, told by the others; low if it is wrong, or hard.

        It is 1 for an only example of its class, which nothing can contradict.
        """
        return self.judge_examples().quality

    def better_labels(self) -> np.ndarray:
        """The class that fits each example best, itself left out: its own unless suspicious."""
        return np.asarray(self.classes_[self.judge_examples().guess])

    def confusions(self, n: int = 10) -> list[tuple[Any, Any, float]]:
        """Pairs of classes that are confused most, and how often one is taken for the other.

        That is the mean probability of the other class for examples of the two, each left out.
        """
        found, classes = self.judge_examples(), self.classes_.tolist()
        best = zip(found.pairs[:n].tolist(), found.rate[:n].tolist(), strict=True)
        return [(classes[a], classes[b], rate) for (a, b), rate in best]

    def next_to_label(self, X: ArrayLike, n: int = 10) -> np.ndarray:
        """Rows of X to label next, in order: typical of what the classifier does not know (M46).

        Args:
            X: Embeddings of unlabelled items.
            n: How many to choose; all of X if it has fewer.
        """
        items = torch.from_numpy(self._queries(X))
        _check_whole("n", n)
        return next_to_label(self.task_, items, self._own()[0], n).numpy()

    def expected_accuracy(self, more: float = 0) -> Expected:
        """Accuracy to expect with `more` further examples of each class, and its 90 % interval.

        It is extrapolated from what half of the examples say about the other half (M47).
        """
        return self.expected_accuracies([more])[0]

    def expected_accuracies(self, more: Sequence[float]) -> list[Expected]:
        """Tell `expected_accuracy` for several numbers of further examples, measured once."""
        check_is_fitted(self, "task_")
        for number in more:
            if not 0 <= number < math.inf:
                raise ValueError(f"Expected more >= 0 examples of each class, got {number!r}.")
        names = None if self.names_ is None else torch.from_numpy(self.names_)
        return expected_accuracies(self.prior_, *self._own(), len(self.classes_), names, more)

    def nearest(self, X: ArrayLike, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
        """The examples that speak most for the answer to each query, and their cosines.

        Places in `examples_`, most similar first; -1 (and 0) where the class has fewer than `k`.
        """
        items = torch.from_numpy(self._queries(X))
        _check_whole("k", k)
        places, cosines = nearest(self.task_, items, *self._own(), k)
        return places.numpy(), cosines.numpy()


def _check_whole(name: str, number: object) -> None:
    if not isinstance(number, Integral) or number < 1:
        raise ValueError(f"Expected {name} to be a whole number from 1, got {number!r}.")
