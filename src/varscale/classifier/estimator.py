"""Few-shot classification of embeddings: a scikit-learn estimator."""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from varscale.classifier.adviser import Adviser
from varscale.classifier.file import FITTED, read_classifier, write_classifier
from varscale.classifier.learner import learn_prior
from varscale.classifier.prior import BROAD, LARGEST, Prior, fixed_prior, unit_of
from varscale.classifier.task import fit_task, tells_scale

UNKNOWN = "unknown"
"""The answer of `predict` to a query that it rejects."""

DTYPES = [np.float64, np.float32, np.float16]
CHUNK = 1 << 24
"""Similarities held in memory at once."""


class FewShotClassifier(Adviser, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify from a few examples, with calibrated probabilities and nothing to tune.

    Base classes teach a prior; the examples of a task update it. `fit` learns the prior from the
    given classes, unless one was passed, then updates it by their examples. New classes need no
    learning: give them to `partial_fit`, or hand `prior_` to another classifier.

    Args:
        prior: What base classes teach: origin, whitening, scale, thresholds. `None` learns it from
            the classes given to `fit`. Pass another classifier's `prior_` to use it, or a number
            for the plain cosine at that scale, which examples do not change.
        random_state: Seed, as scikit-learn takes it; `None` is 0.

    Attributes:
        classes_: The classes, sorted.
        prior_: What base classes taught; see `Prior`.
        task_: What the examples added: origin, scale, class weights; see `classifier.task.Task`.
        examples_: The examples.
        labels_: The class of each, as a place in `classes_`.
        counts_: Examples of each class; 0 for a class of which only the name is known.
        names_: Embeddings of the names of the classes, NaN where there is none; `None` without.
        n_features_in_: Embedding size.

    Example:
        >>> import numpy as np
        >>> draw, y = np.random.default_rng(0), np.repeat(np.arange(20), 12)
        >>> X = draw.normal(size=(20, 32))[y] + draw.normal(size=(240, 32))
        >>> clf = FewShotClassifier().fit(X, y)
        >>> clf.predict_proba(X[:1]).shape
        (1, 20)
    """

    def __init__(self, *, prior: Prior | float | None = None, random_state: int | None = 0) -> None:
        self.prior = prior
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, names: Mapping[Any, ArrayLike] | None = None
    ) -> "FewShotClassifier":
        """Learn a prior from the given classes, unless one was passed, and update it by them.

        Args:
            X: Embeddings, (n, dim), in any order.
            y: Their classes: numbers or strings.
            names: Embedding of the name or description of each class, by class, made by the same
                embedder. A class without examples is known by its name alone.
        """
        items, labels = self._check(X, y, reset=True)
        known = self._check_names(names, labels)
        classes, numbers, table = _arrange(labels, known, items.shape[1])
        if len(classes) < 2 and self.prior is None:
            raise ValueError(
                "Expected at least 2 classes to learn from, got one class. Add more, or pass the "
                "prior of a classifier that was fitted to others."
            )
        self.prior_ = self._learn(torch.from_numpy(items), numbers, table)
        return self._update(classes, items, numbers, table)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        names: Mapping[Any, ArrayLike] | None = None,
    ) -> "FewShotClassifier":
        """Add examples, of new classes or of known ones; the prior stays as it is.

        Args:
            X: Embeddings.
            y: Their classes.
            classes: Ignored; new classes may appear in any call. Present for API consistency.
            names: As in `fit`; added to those that are known.
        """
        if not hasattr(self, "prior_"):
            return self.fit(X, y, names)
        items, labels = self._check(X, y, reset=False)
        if (labels.dtype.kind in "OSU") != (self.classes_.dtype.kind in "OSU"):
            first, got = self.classes_.tolist()[0], labels.tolist()[0]
            raise ValueError(f"Expected classes like {first!r}, got {got!r}.")
        known = self._known_names() | self._check_names(names, labels)
        labels = np.concatenate([self.classes_[self.labels_], labels])
        found, numbers, table = _arrange(labels, known, items.shape[1])
        return self._update(found, np.concatenate([self.examples_, items]), numbers, table)

    def _update(
        self, classes: np.ndarray, items: np.ndarray, numbers: np.ndarray, names: np.ndarray | None
    ) -> "FewShotClassifier":
        """Take the examples, and update the prior by them."""
        self.classes_, self.examples_, self.labels_ = classes, items, numbers
        self.names_, self.counts_ = names, np.bincount(numbers, minlength=len(classes))
        if names is not None:
            _warn_misspelt(classes[self.counts_ == 0], classes[np.isnan(names).any(1)])
        x, y = torch.from_numpy(items), torch.from_numpy(numbers)
        table = None if names is None else torch.from_numpy(names)
        self.task_ = fit_task(self.prior_, x, y, len(classes), table)
        if tells_scale(self.task_.place.count) or not self.prior_.adapts:
            return self
        if not self.prior_.n_classes:
            warnings.warn(
                "Fewer than two classes have two examples, so nothing tells the scale. "
                f"Probabilities use a scale of {BROAD:g}, which is a guess. Give more examples, or "
                "pass a prior learned on other classes.",
                stacklevel=3,
            )
        elif (far := self.task_.distance()) is not None:
            warnings.warn(
                f"These classes are unlike the base classes of the prior: {far}. Probabilities may "
                "be off; second examples of two or more classes correct them.",
                stacklevel=3,
            )
        return self

    def predict_proba(self, X: ArrayLike, transductive: bool = False) -> np.ndarray:
        """Probability of each class, in the order of `classes_`.

        Before a query is seen, all classes count as equally likely, however many examples they
        have.

        Args:
            X: Embeddings.
            transductive: Let all queries of this call tell where their classes lie and how frequent
                these are (M44). More accurate with few examples; then the answer to a query depends
                on the others.
        """
        items = self._queries(X)
        if not transductive:
            return self._probabilities(items)
        with torch.inference_mode():
            p = self.task_.transduce(torch.from_numpy(items))
        return p.numpy().astype(items.dtype)

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
        labels: np.ndarray = self.classes_[self._probabilities(items).argmax(-1)]
        if reject is None:
            return labels
        labels = labels.astype(object)
        labels[self._rejected(items, self.prior_.floor(self._supports(), reject))] = UNKNOWN
        return labels

    def predict_set(self, X: ArrayLike, error: float = 0.1) -> np.ndarray:
        """The classes that each query may belong to: true or false, (n, classes).

        Left out are classes that are unlikely, or that the query does not resemble. The true class
        is in the set for about a share 1 - `error` of the queries, on average over base and new
        classes (M42). A set may be empty. To find queries that belong to none of the classes, use
        `reject` of `predict`.
        """
        items = self._queries(X)
        floor, least = self.prior_.set_thresholds(self._supports(), error)
        out = np.empty((len(items), len(self.classes_)), dtype=bool)
        for part, z in self._chunks(items):
            similar, likely = (
                self.task_.similarity(z) >= floor,
                self.task_.probabilities(z) >= least,
            )
            out[part] = (similar & likely).numpy()
        return out

    def is_unknown(self, X: ArrayLike, reject: float) -> np.ndarray:
        """Whether each query belongs to none of the classes; see `reject` of `predict`."""
        items = self._queries(X)
        return self._rejected(items, self.prior_.floor(self._supports(), reject))

    def known_score(self, X: ArrayLike) -> np.ndarray:
        """Similarity of each query to its most similar class; low if it is unknown."""
        items = self._queries(X)
        out = np.empty(len(items))
        for part, z in self._chunks(items):
            out[part] = self.task_.similarity(z).amax(-1).numpy()
        return out

    def remove(self, examples: ArrayLike) -> "FewShotClassifier":
        """Take back examples, by their places in `examples_`; the prior stays as it is.

        A class that loses its last example, and has no name, is forgotten.
        """
        check_is_fitted(self, "task_")
        places, n = np.unique(np.asarray(examples)), len(self.examples_)  # sorted
        if places.dtype.kind not in "iu" or not len(places):
            raise ValueError(f"Expected places of examples as whole numbers, got {examples!r}.")
        if places[0] < 0 or places[-1] >= n:
            raise ValueError(f"Expected places of examples from 0 to {n - 1}, got {examples!r}.")
        if len(places) == n:
            raise ValueError("Expected to keep at least one example. Fit others instead.")
        labels = self.classes_[np.delete(self.labels_, places)]
        found, numbers, table = _arrange(labels, self._known_names(), self.examples_.shape[1])
        return self._update(found, np.delete(self.examples_, places, axis=0), numbers, table)

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the classifier into one file, tensors and JSON.

        Args:
            path: The file.
            about: More facts to keep in it, as JSON.
        """
        check_is_fitted(self, "task_")
        write_classifier(Path(path), vars(self), about)

    @classmethod
    def load(cls, path: str | Path) -> "FewShotClassifier":
        """Load a saved classifier. Never executes code; fitted again, it keeps its prior."""
        fitted = read_classifier(Path(path))
        self = cls(prior=fitted["prior_"])
        for name in ("prior_", "n_features_in_", "feature_names_in_"):
            if name in fitted:
                setattr(self, name, fitted[name])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it was said when the classifier was fitted
            return self._update(*(fitted[name] for name in FITTED))

    @np.errstate(invalid="ignore")  # scikit-learn looks for NaN in the sum of all, which may be inf
    def _check(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        _refuse_texts(X)
        items, labels = validate_data(self, X, y, reset=reset, dtype=DTYPES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # many classes of one example are fine here
            check_classification_targets(labels)
        return _wide(items), labels

    @np.errstate(invalid="ignore")
    def _queries(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "task_")
        _refuse_texts(X)
        return _wide(validate_data(self, X, reset=False, dtype=DTYPES))

    def _check_names(
        self, names: Mapping[Any, ArrayLike] | None, labels: np.ndarray
    ) -> dict[Any, np.ndarray]:
        """Check names of classes; raise ValueError if one cannot be that."""
        if names is not None and not isinstance(names, Mapping):
            raise ValueError(
                "Expected names as a dict from each class to the embedding of its name, got "
                f"{type(names).__name__}."
            )
        found = {}
        for label, name in (names or {}).items():
            vector = np.asarray(name, dtype=np.float64)
            if vector.shape != (self.n_features_in_,) or not np.isfinite(vector).all():
                raise ValueError(
                    f"Expected an embedding of {self.n_features_in_} finite numbers as the name of "
                    f"{label!r}, got shape {vector.shape}."
                )
            if isinstance(label, str) != (labels.dtype.kind in "OSU"):
                raise ValueError(f"Expected names of classes like {labels[0]!r}, got {label!r}.")
            found[label] = vector
        return found

    def _known_names(self) -> dict[Any, np.ndarray]:
        """Names of classes that are known, by class."""
        if self.names_ is None:
            return {}
        has = ~np.isnan(self.names_).any(1)
        return dict(zip(self.classes_[has].tolist(), self.names_[has], strict=True))

    def _learn(self, x: Tensor, labels: np.ndarray, names: np.ndarray | None) -> Prior:
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
            return fixed_prior(self.prior, dim, unit_of(x.abs().max().double()).item())
        table = None if names is None else torch.from_numpy(names)
        return learn_prior(x, labels, seed=_seed(self.random_state), names=table)

    def _probabilities(self, items: np.ndarray) -> np.ndarray:
        out = np.empty((len(items), len(self.classes_)), items.dtype)
        for part, z in self._chunks(items):
            out[part] = self.task_.probabilities(z).numpy()
        return out

    def _rejected(self, items: np.ndarray, floor: Tensor) -> np.ndarray:
        """Whether every class rejects a query."""
        out = np.empty(len(items), dtype=bool)
        for part, z in self._chunks(items):
            out[part] = (self.task_.similarity(z) < floor).all(-1).numpy()
        return out

    def _supports(self) -> Tensor:
        """Examples of each class; a name counts as one."""
        return torch.from_numpy(self.counts_).clamp_min(1)

    def _chunks(self, items: np.ndarray) -> Iterator[tuple[slice, Tensor]]:
        """Yield unit vectors, some queries at a time."""
        size = max(1, CHUNK // (len(self.classes_) + items.shape[1]))
        with torch.inference_mode():
            for start in range(0, len(items), size):
                part = slice(start, start + size)
                yield part, self.task_.embed(torch.from_numpy(items[part]))


def _arrange(
    labels: np.ndarray, names: Mapping[Any, np.ndarray], dim: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Sort classes of examples and names; number the examples; names as a table."""
    classes = np.unique(labels)
    if not names:
        return classes, np.searchsorted(classes, labels).astype(np.int64), None
    classes = np.union1d(
        classes,
        np.array(list(names), dtype=classes.dtype if classes.dtype.kind not in "US" else None),
    )
    table = np.full((len(classes), dim), np.nan)
    for label, name in names.items():
        table[np.searchsorted(classes, label)] = name
    return classes, np.searchsorted(classes, labels).astype(np.int64), table


def _warn_misspelt(unseen: np.ndarray, unnamed: np.ndarray) -> None:
    """Warn of classes without examples that are written nearly like classes without a name."""

    def plain(label: object) -> str:
        return re.sub(r"[\s_-]", "", label).casefold() if isinstance(label, str) else ""

    meant = {plain(label): label for label in unnamed.tolist()}
    pairs = [(label, plain(label) and meant.get(plain(label))) for label in unseen.tolist()]
    if found := [f"{label!r} and {other!r}" for label, other in pairs if other]:
        more = f", and {len(found) - 5} more" if len(found) > 5 else ""
        warnings.warn(
            f"Classes that have a name and no examples, or examples and no name: "
            f"{', '.join(found[:5])}{more}. If these are the same, write them alike.",
            stacklevel=4,
        )


def _refuse_texts(X: Any) -> None:
    """Raise ValueError for a list of texts: they have to be embedded."""
    is_list = isinstance(X, Iterable) and not isinstance(X, Mapping) and getattr(X, "ndim", 1) == 1
    if is_list and isinstance(next(iter(X), None), str):
        raise ValueError(
            "Expected embeddings, rows of numbers, got texts. Embed them first: varscale.items "
            "reads and embeds a table, and varscale fit does all in one."
        )


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
