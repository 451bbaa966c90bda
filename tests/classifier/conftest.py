"""A classifier that several files ask."""

import pytest
from conftest import classes

from varscale import FewShotClassifier


@pytest.fixture(scope="session")
def base():
    return FewShotClassifier().fit(*classes())
