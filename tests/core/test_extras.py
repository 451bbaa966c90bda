"""A package that is not there is a sentence with the extra that brings it."""

import pytest

from varscale.core.extras import needs


def test_a_missing_package_names_its_extra():
    sentence = r"^Training needs no_such_package: pip install 'varscale\[train\]'\.$"
    with pytest.raises(ValueError, match=sentence), needs("train", "Training"):
        import no_such_package  # noqa: F401


def test_other_errors_pass():
    with pytest.raises(KeyError), needs("train", "Training"):
        raise KeyError
