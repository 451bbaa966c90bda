"""Fixtures of the tests of data."""

import pytest


@pytest.fixture
def root(tmp_path):
    """Where datasets are prepared."""
    return tmp_path / "data"
