"""Embeddings of any size, and of every odd kind: the same answers, and no warning."""

import warnings

import numpy as np
import pytest
from conftest import classes

from varscale import FewShotClassifier

KINDS = {"learned": (12, None), "broad": (8, None), "fixed": (12, 9.0)}
"""Number of classes, and prior."""


def of_size_one(n_classes, seed):
    x, y = classes(n_classes=n_classes, per_class=6, seed=seed)
    x = x.astype(np.float64)
    return x / np.abs(x).max(), y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "size", "digits"),
    [  # of 2^-140, single precision has 9 bits
        (np.float32, 2.0**127, 1e-4),
        (np.float32, 2.0**-120, 1e-4),
        (np.float32, 2.0**-140, 0.1),
        (np.float64, 2.0**990, 1e-4),
        (np.float64, 2.0**-1000, 1e-4),
    ],
)
def test_the_size_of_embeddings_does_not_matter(dtype, size, digits, kind, tmp_path):
    n_classes, prior = KINDS[kind]
    x, y = of_size_one(n_classes, 0)
    query, _ = of_size_one(3, 1)
    plain = FewShotClassifier(prior=prior).fit(x.astype(dtype), y)
    sized = FewShotClassifier(prior=prior).fit((size * x).astype(dtype), y)
    expected = plain.predict_proba(query.astype(dtype))
    answer = sized.predict_proba((size * query).astype(dtype))
    np.testing.assert_allclose(answer, expected, atol=digits)
    assert answer.max() > 1.4 / n_classes  # some are told apart
    sized.save(tmp_path / "x")
    loaded = FewShotClassifier.load(tmp_path / "x")
    assert np.array_equal(loaded.predict_proba((size * query).astype(dtype)), answer)
    assert sized.prior_.mean == pytest.approx(plain.prior_.mean, rel=digits)


@pytest.mark.parametrize("size", [2.0**120, 2.0**-120])
def test_rows_of_any_size_beside_ordinary_ones(size):
    x, y = of_size_one(3, 0)
    clf = FewShotClassifier(prior=10.0).fit(x.astype(np.float32), y)
    sizes = np.where(np.arange(len(x)) % 2, size, 1.0)[:, None]
    both = clf.predict_proba((x * sizes).astype(np.float32))
    np.testing.assert_allclose(both, clf.predict_proba(x.astype(np.float32)), atol=1e-5)
    zero = clf.predict_proba(0 * x[:1])
    np.testing.assert_allclose(zero, 1 / 3)


def odd(seed):
    """Data and priors of every kind, by a seed."""
    draw = np.random.default_rng(seed)
    n, dim, n_classes = (int(draw.integers(1, top)) for top in (60, 30, 16))
    dtype = draw.choice([np.float16, np.float32, np.float64])
    y = draw.integers(0, n_classes, n)
    x = draw.normal(size=(n_classes, dim))[y] + draw.normal(size=(n, dim))
    kind = draw.choice(["plain", "twice", "zero", "constant", "same", "holes"])
    if kind == "twice":
        x = x[draw.integers(0, max(1, n // 5), n)]
    elif kind == "zero":
        x = 0 * x
    elif kind == "constant":
        x[:, : 1 + dim // 2] = 3.0
    elif kind == "same":
        x[:] = x[0]
    elif kind == "holes":
        x[draw.random(n) < 0.3] = 0
    top = float(np.finfo(dtype).max) if dtype != np.float64 else 1e300
    low, high = draw.choice([[0.0, 0.0], [-42.0, 38.0], [np.log10(top)] * 2])
    size = min(10 ** draw.uniform(low, high) if low < high else 10**low, top)
    x = (x / (np.abs(x).max() or 1) * size).astype(dtype)
    prior = [None, None, None, 1e-3, 1e6][draw.integers(5)]
    return x, y, 10.0 if prior is None and len(set(y)) < 2 else prior


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.filterwarnings("ignore:Fewer than two classes")
def test_no_data_make_numpy_warn(seed):
    x, y, prior = odd(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        clf = FewShotClassifier(prior=prior).fit(x, y)
        probability = clf.predict_proba(x)
        clf.partial_fit(x[:2], y[:2]).known_score(x)
    np.testing.assert_allclose(probability.astype(float).sum(1), 1, atol=1e-3)
