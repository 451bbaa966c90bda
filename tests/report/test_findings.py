"""What examples say about each other."""

import numpy as np
import pytest

from varscale import FewShotClassifier
from varscale.report.findings import describe_examples


@pytest.mark.parametrize("named", [0, 2, 4])
def test_a_name_judges_the_only_example_of_its_class(named):
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(16, 8))
    base = FewShotClassifier().fit(
        np.repeat(centres[:12], 5, 0) + 0.2 * draw.normal(size=(60, 8)), np.repeat(np.arange(12), 5)
    )
    x, y = centres[12:] + 0.2 * draw.normal(size=(4, 8)), np.arange(4)
    names = {k: centres[12 + k] for k in range(named)} or None
    facts = describe_examples(FewShotClassifier(prior=base.prior_).fit(x, y, names), more=None)
    assert facts["single"] == 4 - named
    if named:
        assert facts["accuracy"]["of"] == named
    else:
        assert "every class has one alone" in facts["note"]
