"""Fixtures that more than one file uses."""

import os

# Models are tiny here: a second thread would only wait. Child processes inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import extras
import hypothesis
import jaxtyping
import numpy as np
import pytest
import torch
from own_items import letters, pictures, tickets  # noqa: F401 - fixtures
from PIL import Image

import varscale
from varscale.data.prepare import prepare
from varscale.data.readers import ReaderOptions

# New examples at every desk, the same ones in CI: a change must not fail for another's luck.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


def pytest_configure(config):
    """Skip what lacks an extra, in the doctests of the library too."""
    config.pluginmanager.register(extras)


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory):
    """Datasets are prepared in a folder of the session's, not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VARSCALE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def as_user():
    """Shape annotations are not checked, as for every user: the library's own errors show."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def host_logits(host, support, labels, query, alpha, *, n_way):
    """Class scores of a host in one call."""
    references = host.references(support, labels, n_way=n_way)
    return host.logits(query, references, labels, alpha, n_way=n_way)


def random_episode(
    *, tasks=1, way=3, shots=(2, 1, 3), queries=4, dim=5, seed=0, dtype=torch.float64, item=None
):
    """An episode of random items, `shots` giving the supports of each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(shots)])
    order = torch.stack([torch.randperm(len(labels), generator=generator) for _ in range(tasks)])
    item = (dim,) if item is None else item
    return varscale.Episode(
        torch.randn(tasks, len(labels), *item, generator=generator, dtype=torch.float64).to(dtype),
        labels[order],
        torch.randn(tasks, queries, *item, generator=generator, dtype=torch.float64).to(dtype),
        torch.randint(way, (tasks, queries), generator=generator),
        n_way=way,
    )


TINY = {
    "dataset": "tiny-images",
    "backbone": "tiny",
    "metric": "cosine",
    "n_way": 3,
    "n_query": 4,
    "accelerator": "cpu",
}
"""A training on the dataset of `tiny_images`, as keys of a config."""


@pytest.fixture(scope="session")
def tiny_images(home, tmp_path_factory):
    """A prepared dataset of grey 8x8 images, 7 classes to train on, 4 to validate, 4 to test."""
    root = tmp_path_factory.mktemp("tiny") / "images"
    generator = np.random.default_rng(0)
    counts = {"train": 7, "val": 4, "test": 4}
    for split, n in counts.items():
        for k in range(n):
            centre = generator.uniform(60, 190, size=(8, 8))
            for i in range(12):
                pixels = (centre + generator.normal(0, 40, size=(8, 8))).clip(0, 255)
                path = root / split / f"{split}{k}" / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.astype(np.uint8)).save(path)
    prepare("tiny-images", root, ReaderOptions(size=8, grey=True))
    return "tiny-images"


@pytest.fixture(scope="session")
def points(home, tmp_path_factory):
    """A prepared dataset of 6-dimensional embeddings, 12 classes split by a seed."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    items = generator.normal(size=(12, 6))[labels] + 0.7 * generator.normal(size=(120, 6))
    path = tmp_path_factory.mktemp("points") / "points.npz"
    np.savez(path, embeddings=items.astype(np.float32), labels=labels)
    prepare("points", path)
    return "points"


def classes(n_classes=24, per_class=20, dim=16, seed=0, noise=1.0, common=3.0):
    """Gaussian classes with a part in common and unequal spreads of the dimensions."""
    draw = np.random.default_rng(seed)
    spread = np.linspace(0.3, 1.7, dim)
    y = np.repeat(np.arange(n_classes), per_class)
    means = draw.normal(size=(n_classes, dim))
    x = means[y] + noise * spread * draw.normal(size=(len(y), dim)) + common
    return x, y
