"""Few-shot classification of embeddings, as scikit-learn has its estimators."""

import json
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from varscale.files import write_whole
from varscale.learned_scale import GUESS, LearnedScale, given_scale
from varscale.scale_learner import ScaleLearner, ScalerName
from varscale.shots import tempered
from varscale.version import __version__

UNKNOWN = "unknown"
"""What `predict` answers when it rejects a query."""

DTYPES = [np.float64, np.float32, np.float16]

CHUNK = 1 << 24
"""Similarities that are held at once."""


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify by the nearest class mean, with probabilities that mean something.

    `fit` learns the scale of the metric by tasks drawn from the given classes, then stores the
    class means. New classes need no learning: give them to `partial_fit`, or hand `scale_` to
    another classifier.

    Args:
        scale: Where the scale comes from: `None` learns it; a `LearnedScale`, such as another
            classifier's `scale_`, or a number is used as it is.
        scaler: `svs`, one scale; or `d-svs`, one weight per dimension under a hierarchical prior.
        center: Put the origin at the mean of the base embeddings.
        shrinkage: Of the covariance within classes towards the identity, before whitening by it:
            0 to 1, `None` for no whitening, `"auto"` for 0.9 where the data support it.
        n_tasks: What the given classes are worth to `d-svs`, in independent tasks: an eighth of
            their number when not given; `"cv"` chooses by held-out classes.
        init_scale: Where the scale starts; it ends in the same place.
        steps: Steps in which `d-svs` learns.
        random_state: Seed, a whole number.

    Attributes:
        classes_: The classes, sorted.
        scale_: The scale, with its posterior mean and spread; see `LearnedScale`.
        centres_: Mean embedding of each class.
        counts_: Examples of each class.
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
        scale: LearnedScale | float | None = None,
        scaler: ScalerName = "svs",
        center: bool = True,
        shrinkage: float | Literal["auto"] | None = "auto",
        n_tasks: float | Literal["cv"] | None = None,
        init_scale: float = 20.0,
        steps: int = 150,
        random_state: int | None = 0,
    ) -> None:
        self.scale = scale
        self.scaler = scaler
        self.center = center
        self.shrinkage = shrinkage
        self.n_tasks = n_tasks
        self.init_scale = init_scale
        self.steps = steps
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> "FewShotClassifier":
        """Learn the scale from the given classes, unless there is one, and store their means.

        Args:
            X: Embeddings, (n, dim).
            y: Their classes: numbers or strings.
        """
        items, labels = self._checked(X, y, reset=True)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2 and self.scale is None:
            raise ValueError(
                "Expected examples of at least 2 classes to learn a scale from, got one class. Add "
                "classes, or pass a scale learned elsewhere."
            )
        self.scale_ = self._scale(torch.from_numpy(items), numbers.astype(np.int64))
        self.counts_ = np.bincount(numbers)
        self.centres_ = _sums(items, numbers, len(self.classes_)) / self.counts_[:, None]
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
    ) -> "FewShotClassifier":
        """Add examples, of new classes or of known ones; the scale stays as it is.

        Args:
            X: Embeddings.
            y: Their classes.
            classes: Of no use here, new classes are welcome at any time; scikit-learn passes it.
        """
        if not hasattr(self, "scale_"):
            return self.fit(X, y)
        items, labels = self._checked(X, y, reset=False)
        if labels.dtype.kind in "OSU" and self.classes_.dtype.kind not in "OSU":
            raise ValueError(f"Expected classes like {self.classes_[0]!r}, got {labels[0]!r}.")
        known = self.classes_
        self.classes_ = np.union1d(known, labels)
        n, place = len(self.classes_), np.searchsorted(self.classes_, known)
        total = np.zeros((n, items.shape[1]))
        total[place] = self.centres_ * self.counts_[:, None]
        counts = np.zeros(n, dtype=np.int64)
        counts[place] = self.counts_
        numbers = np.searchsorted(self.classes_, labels)
        self.counts_ = counts + np.bincount(numbers, minlength=n)
        self.centres_ = (total + _sums(items, numbers, n)) / self.counts_[:, None]
        return self

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probability of each class, in the order of `classes_`."""
        items = self._queries(X)
        out = np.empty((len(items), len(self.classes_)), items.dtype)
        for start, similarity in self._similarities(items):
            out[start : start + len(similarity)] = self._logits(similarity).softmax(-1).numpy()
        return out

    def predict(self, X: ArrayLike, reject: float | None = None) -> np.ndarray:
        """The most likely class of each query, or "unknown".

        Args:
            X: Embeddings.
            reject: Share of queries of known classes that may be rejected at most, such as 0.05;
                `None` never answers "unknown". The promise is conformal: it rests on the base
                classes being like the classes asked about, not on the scale.
        """
        items = self._queries(X)
        answer = np.empty(len(items), dtype=np.int64)
        for start, similarity in self._similarities(items):
            answer[start : start + len(similarity)] = self._logits(similarity).argmax(-1).numpy()
        labels = self.classes_[answer]
        if reject is None:
            return labels
        labels = labels.astype(object)
        labels[self.is_unknown(items, reject)] = UNKNOWN
        return labels

    def is_unknown(self, X: ArrayLike, reject: float) -> np.ndarray:
        """Whether each query belongs to none of the classes, at a level as for `predict`."""
        items = self._queries(X)
        floor = self._floor(reject)
        out = np.empty(len(items), dtype=bool)
        for start, similarity in self._similarities(items):
            out[start : start + len(similarity)] = (similarity < floor).all(-1).numpy()
        return out

    def known_score(self, X: ArrayLike) -> np.ndarray:
        """Similarity of each query to the class most similar to it: low for what is unknown."""
        items = self._queries(X)
        out = np.empty(len(items))
        for start, similarity in self._similarities(items):
            out[start : start + len(similarity)] = similarity.max(-1).values.numpy()
        return out

    def save(self, path: str | Path) -> None:
        """Write the classifier into one safetensors file, its settings as JSON in the header."""
        check_is_fitted(self, "centres_")
        tensors = {
            "centres": torch.from_numpy(self.centres_),
            "counts": torch.from_numpy(self.counts_),
            **self.scale_.tensors(),
        }
        facts = {
            "version": __version__,
            "classes": self.classes_.tolist(),
            "dtype": self.classes_.dtype.str,
            "params": {**self.get_params(deep=False), "scale": None},
            "scale": self.scale_.facts(),
        }
        write_whole(Path(path), save(tensors, {"varscale": json.dumps(facts)}))

    @classmethod
    def load(cls, path: str | Path) -> "FewShotClassifier":
        """Read what `save` wrote; no code is ever loaded."""
        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads((file.metadata() or {})["varscale"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self = cls(**facts["params"])
            self.scale_ = LearnedScale.restored(facts["scale"], tensors)
            self.classes_ = np.array(facts["classes"], dtype=facts["dtype"])
            self.centres_, self.counts_ = tensors["centres"].numpy(), tensors["counts"].numpy()
            self.n_features_in_ = self.centres_.shape[1]
            return self
        except FileNotFoundError as error:
            raise ValueError(f"Expected a saved classifier at {path}, got no file.") from error
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise ValueError(f"{path} is no classifier that varscale saved: {error!r}.") from error

    def _checked(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        items, labels = validate_data(self, X, y, reset=reset, dtype=DTYPES)
        check_classification_targets(labels)
        return _wide(items), labels

    def _queries(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "centres_")
        return _wide(validate_data(self, X, reset=False, dtype=DTYPES))

    def _scale(self, x: Tensor, labels: np.ndarray) -> LearnedScale:
        dim = x.shape[1]
        if isinstance(self.scale, LearnedScale):
            if self.scale.dim != dim:
                raise ValueError(
                    f"Expected embeddings of {self.scale.dim} numbers, like those that the scale "
                    f"was learned on, got {dim}."
                )
            return self.scale
        if self.scale is not None:
            return given_scale(self.scale, dim)
        learner = ScaleLearner(
            scaler=self.scaler,
            center=self.center,
            shrinkage=self.shrinkage,
            n_tasks=self.n_tasks,
            init_scale=self.init_scale,
            steps=self.steps,
            seed=0 if self.random_state is None else self.random_state,
        )
        learned = learner(x, labels)
        if learned is None:
            warnings.warn(
                "No two classes have two examples, so no scale can be learned: probabilities are "
                f"those of a scale of {GUESS:g}, which is a guess. Give more examples, or a scale "
                "learned on other classes.",
                stacklevel=3,
            )
            return given_scale(GUESS, dim, shot_offset=0.5)
        return learned

    def _similarities(self, items: np.ndarray) -> Any:
        """Similarities to all classes, some queries at a time."""
        x = torch.from_numpy(items)
        centres = torch.from_numpy(self.centres_).to(x)
        size = max(1, CHUNK // (len(self.classes_) + x.shape[1]))
        with torch.inference_mode():
            for start in range(0, len(x), size):
                yield start, self.scale_.metric(x[start : start + size], centres)

    def _logits(self, similarity: Tensor) -> Tensor:
        count = torch.from_numpy(self.counts_).to(similarity)
        return tempered(similarity, self.scale_.at_shots(count).unsqueeze(0))

    def _floor(self, share: float) -> Tensor:
        """The similarity below which each class calls a query foreign."""
        if not 0 < share < 1:
            raise ValueError(f"Expected reject between 0 and 1, a share of queries, got {share!r}.")
        conformity = self.scale_.conformity
        if conformity is None:
            raise ValueError(
                "To answer with none of the classes, the scale must be learned on at least 10 "
                f"classes of two or more examples; it is {self.scale_!r}."
            )
        if share <= (least := conformity.smallest_share):
            warnings.warn(
                f"With {conformity.n_classes} base classes nothing can be rejected at {share:g}: "
                f"the least share that can be promised is {least:.3g}.",
                stacklevel=3,
            )
        return conformity.thresholds(torch.from_numpy(self.counts_), share)


def _sums(items: np.ndarray, numbers: np.ndarray, n_classes: int) -> np.ndarray:
    """Sum of the items of each class, in float64."""
    total = torch.zeros(n_classes, items.shape[1], dtype=torch.float64)
    total.index_add_(0, torch.from_numpy(numbers), torch.from_numpy(items).double())
    return total.numpy()


def _wide(items: np.ndarray) -> np.ndarray:
    """Half precision as single, all else as it is."""
    return items.astype(np.float32) if items.dtype == np.float16 else items
