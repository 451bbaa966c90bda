"""Fixtures that more than one file uses."""

import os

import hypothesis
import jaxtyping
import pytest
import torch

import varscale

# New examples at every desk, the same ones in CI: a change must not fail for another's luck.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


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
