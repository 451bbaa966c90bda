"""Few-shot classification of embeddings: a scikit-learn estimator."""

import warnings
from collections.abc import Iterator
from dataclasses import fields
from numbers import Integral, Real
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from varscale.classifier.file import read_classifier, write_classifier
from varscale.classifier.learner import PriorLearner, ScalerName
from varscale.classifier.prior import LARGEST, Prior, fixed_prior
from varscale.learn.quadrature import GUESS

UNKNOWN = "unknown"
"""The answer of `predict` to a query that it rejects."""

DTYPES = [np.float64, np.float32, np.float16]
CHUNK = 1 << 24
"""Similarities held in memory at once."""


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify by the nearest class mean, with calibrated probabilities.

    `fit` learns the scale of the metric on tasks drawn from the given classes, then stores the
    class means. New classes need no learning: give them to `partial_fit`, or hand `prior_` to
    another classifier.

    Args:
        prior: What base classes teach: origin, whitening, scale, thresholds. `None` learns it from
            the classes given to `fit`. Pass another classifier's `prior_` to use it as it is, or a
            number for the plain cosine at that scale; then the arguments below have no effect.
        scaler: `svs`, one scale; or `d-svs`, one weight per dimension under a hierarchical prior.
        center: Put the origin at the mean of the base classes.
        shrinkage: Of the covariance within classes towards the identity, before whitening by it:
            0 to 1, `None` for no whitening, `"auto"` for 0.9 where the data support it.
        effective_tasks: Strength of the data against `d-svs`'s prior, in independent tasks; larger
            lets dimensions differ more. An eighth of the number of classes when not given; `"cv"`
            chooses it on held-out classes (M30).
        init: Initial value of the scale; the result does not depend on it.
        steps: Training steps of `d-svs`.
        random_state: Seed, as scikit-learn takes it; `None` is 0.

    Attributes:
        classes_: The classes, sorted.
        prior_: What base classes taught: a metric and the posterior of its scale; see `Prior`.
        centres_: Mean embedding of each class.
        counts_: Examples of each class.
        own_: Whether the class is one of those that the prior was learned on.
        n_features_in_: Embedding size.

    Example:
        >>> import numpy as np
        >>> draw, y = np.random.default_rng(0), np.repeat(np.arange(20), 12)
        >>> X = draw.normal(size=(20, 32))[y] + draw.normal(size=(240, 32))
        >>> clf = FewShotClassifier().fit(X, y)
        >>> clf.predict_proba(X[:1]).shape
        (1, 20)
    """

    def __init__(
        self,
        *,
        prior: Prior | float | None = None,
        scaler: ScalerName = "svs",
        center: bool = True,
        shrinkage: float | Literal["auto"] | None = "auto",
        effective_tasks: float | Literal["cv"] | None = None,
        init: float = 20.0,
        steps: int = 150,
        random_state: int | None = 0,
    ) -> None:
        self.prior = prior
        self.scaler = scaler
        self.center = center
        self.shrinkage = shrinkage
        self.effective_tasks = effective_tasks
        self.init = init
        self.steps = steps
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> "FewShotClassifier":
        """Learn a prior from the given classes, unless one was passed, and store their means.

        Args:
            X: Embeddings, (n, dim).
            y: Their classes: numbers or strings.
        """
        items, labels = self._check(X, y, reset=True)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2 and self.prior is None:
            raise ValueError(
                "Expected at least 2 classes to learn from, got one class. Add more, or pass prior."
            )
        self.prior_ = self._learn(torch.from_numpy(items), numbers.astype(np.int64))
        self.counts_ = np.bincount(numbers)
        self.own_ = (self.counts_ > 1) & (self.prior is None)
        self.centres_ = _sums(items, numbers, len(self.classes_)) / self.counts_[:, None]
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None
    ) -> "FewShotClassifier":
        """Add examples, of new classes or of known ones; the prior stays as it is.

        Args:
            X: Embeddings.
            y: Their classes.
            classes: Ignored; new classes may appear in any call. Present for API consistency.
        """
        if not hasattr(self, "prior_"):
            return self.fit(X, y)
        items, labels = self._check(X, y, reset=False)
        if (labels.dtype.kind in "OSU") != (self.classes_.dtype.kind in "OSU"):
            known, got = self.classes_.tolist()[0], labels.tolist()[0]
            raise ValueError(f"Expected classes like {known!r}, got {got!r}.")
        known = self.classes_
        self.classes_ = np.union1d(known, labels)
        n, place = len(self.classes_), np.searchsorted(self.classes_, known)
        total = _place(self.centres_ * self.counts_[:, None], place, n)
        numbers = np.searchsorted(self.classes_, labels)
        self.own_ = _place(self.own_, place, n)
        self.counts_ = _place(self.counts_, place, n) + np.bincount(numbers, minlength=n)
        self.centres_ = (total + _sums(items, numbers, n)) / self.counts_[:, None]
        return self

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probability of each class, in the order of `classes_`."""
        items = self._queries(X)
        out = np.empty((len(items), len(self.classes_)), items.dtype)
        for part, log_p in self._probabilities(items):
            out[part] = log_p.exp().numpy()
        return out

    def predict(self, X: ArrayLike, reject: float | None = None) -> np.ndarray:
        """The most likely class of each query, or "unknown" (in an array of objects).

        Args:
            X: Embeddings.
            reject: Share of queries of known classes that may be rejected at most, such as 0.1, on
                average over base and new classes; `None` never answers "unknown". See M29.
        """
        items = self._queries(X)
        if reject is not None and UNKNOWN in self.classes_.tolist():
            raise ValueError(
                f"Expected no class called {UNKNOWN!r}: that is what rejecting answers."
            )
        answer = np.empty(len(items), dtype=np.int64)
        for part, log_p in self._probabilities(items):
            answer[part] = log_p.argmax(-1).numpy()
        labels = self.classes_[answer]
        if reject is None:
            return labels
        labels = labels.astype(object)
        labels[self._unknown(items, reject)] = UNKNOWN
        return labels

    def is_unknown(self, X: ArrayLike, reject: float) -> np.ndarray:
        """Whether each query belongs to none of the classes; see `reject` of `predict`."""
        return self._unknown(self._queries(X), reject)

    def _unknown(self, items: np.ndarray, reject: float) -> np.ndarray:
        floor = self.prior_.floor(torch.from_numpy(self.counts_), reject)
        out = np.empty(len(items), dtype=bool)
        for part, similarity in self._similarities(items):
            out[part] = (similarity < floor).all(-1).numpy()
        return out

    def known_score(self, X: ArrayLike) -> np.ndarray:
        """Similarity of each query to its most similar class; low if it is unknown."""
        items = self._queries(X)
        out = np.empty(len(items))
        for part, similarity in self._similarities(items):
            out[part] = similarity.max(-1).values.numpy()
        return out

    def save(self, path: str | Path) -> None:
        """Write the classifier into one file, tensors and JSON."""
        check_is_fitted(self, "centres_")
        params = {**self.get_params(deep=False), "prior": None, "random_state": None}
        write_classifier(Path(path), vars(self), params)

    @classmethod
    def load(cls, path: str | Path) -> "FewShotClassifier":
        """Load a saved classifier. Never executes code; fitted again, it keeps its prior."""
        fitted, params = read_classifier(Path(path))
        try:
            self = cls(**{**params, "prior": fitted["prior_"], "random_state": 0})
        except TypeError as e:
            raise ValueError(f"{path} is not a classifier that varscale saved: {e!r}.") from e
        for name, value in fitted.items():
            setattr(self, name, value)
        return self

    @np.errstate(invalid="ignore")  # scikit-learn looks for NaN in the sum of all, which may be inf
    def _check(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        items, labels = validate_data(self, X, y, reset=reset, dtype=DTYPES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # many classes of one example are fine here
            check_classification_targets(labels)
        return _wide(items), labels

    @np.errstate(invalid="ignore")
    def _queries(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "centres_")
        return _wide(validate_data(self, X, reset=False, dtype=DTYPES))

    def _learn(self, x: Tensor, labels: np.ndarray) -> Prior:
        dim = x.shape[1]
        if isinstance(self.prior, Prior):
            if self.prior.dim != dim:
                raise ValueError(
                    f"Expected embeddings of {self.prior.dim} numbers, as the prior has, got {dim}."
                )
            return self.prior
        if self.prior is not None:
            if not isinstance(self.prior, Real):
                raise ValueError(
                    "Expected prior to be a number or a classifier's prior_, got "
                    f"{type(self.prior).__name__}. Of a file: FewShotClassifier.load(FILE).prior_."
                )
            return fixed_prior(self.prior, dim)
        options = {f.name: getattr(self, f.name) for f in fields(PriorLearner) if f.name != "seed"}
        learned = PriorLearner(**options, seed=_seed(self.random_state))(x, labels)
        if learned is None:
            warnings.warn(
                "Fewer than two classes have two examples, so no scale can be learned. "
                f"Probabilities use a scale of {GUESS:g}, which is a guess. Give more examples, or "
                "pass a prior learned on other classes.",
                stacklevel=3,
            )
            return fixed_prior(GUESS, dim, shot_offset=0.5)
        return learned

    def _similarities(self, items: np.ndarray) -> Iterator[tuple[slice, Tensor]]:
        """Yield similarities to all classes, some queries at a time."""
        for part, query, references in self._chunks(items):
            yield part, self.prior_.metric.similarity(query, references)[0]

    def _probabilities(self, items: np.ndarray) -> Iterator[tuple[slice, Tensor]]:
        """Yield log-probabilities of all classes, some queries at a time."""
        count, own = torch.from_numpy(self.counts_), torch.from_numpy(self.own_)
        for part, query, references in self._chunks(items):
            yield part, self.prior_.log_probabilities(query, references, count, own)[0]

    def _chunks(self, items: np.ndarray) -> Iterator[tuple[slice, Tensor, Tensor]]:
        size = max(1, CHUNK // (len(self.classes_) + items.shape[1]))
        with torch.inference_mode():
            references = self.prior_.metric.references(torch.from_numpy(self.centres_[None]))
            for start in range(0, len(items), size):
                part = slice(start, start + size)
                yield part, torch.from_numpy(items[None, part]), references


def _place(values: np.ndarray, place: np.ndarray, n: int) -> np.ndarray:
    """Place values of some classes among those of n; the others are zero."""
    out = np.zeros((n, *values.shape[1:]), values.dtype)
    out[place] = values
    return out


def _sums(items: np.ndarray, numbers: np.ndarray, n_classes: int) -> np.ndarray:
    """Sum of the items of each class, in float64."""
    total = torch.zeros(n_classes, items.shape[1], dtype=torch.float64)
    total.index_add_(0, torch.from_numpy(numbers), torch.from_numpy(items).double())
    return total.numpy()


def _wide(items: np.ndarray) -> np.ndarray:
    """Convert half precision to single, in memory that torch accepts; check the range."""
    if float(np.abs(items).max()) > LARGEST:
        raise ValueError(f"Expected no number above {LARGEST:g} in embeddings. Divide them all.")
    dtype = np.float32 if items.dtype == np.float16 else items.dtype
    return np.require(items, dtype, ["C", "W"])


def _seed(random_state: object) -> int:
    """Make an integer seed of whatever scikit-learn accepts."""
    if random_state is None or isinstance(random_state, Integral):
        return int(random_state or 0)
    return int(check_random_state(random_state).randint(2**31))
