"""The file of a model of items."""

import numpy as np
import pytest

from varscale import FewShotClassifier
from varscale.items import load_model


@pytest.mark.parametrize(
    "about",
    [
        {"shown": [1, 2, 3]},
        {"shown": ["one of three"]},
        {"keys": "abc"},
        {"columns": {"text": 3}},
        {"columns": {"colour": "x"}},
        {"columns": []},
        {"embedder": {"spec": "minilm"}},
        {"embedder": "minilm"},
        {"embedder": {}},
        {"embedder": []},
        {"sources": [1]},
    ],
)
def test_damaged_facts_about_items_are_refused(tmp_path, about):
    clf = FewShotClassifier(prior=9.0).fit(np.eye(3), ["a", "b", "b"])
    clf.save(tmp_path / "m.st", about)
    with pytest.raises(ValueError, match="not a classifier that varscale saved"):
        load_model(tmp_path / "m.st")


def test_a_classifier_of_embeddings_is_a_model_without_embedder(tmp_path):
    FewShotClassifier(prior=9.0).fit(np.eye(3), [1, 2, 2]).save(tmp_path / "m.st")
    model = load_model(tmp_path / "m.st")
    assert (model.embedder, model.takes, model.shown) == (None, "embedding", [])
    assert model.classes == [1, 2]
    with pytest.raises(ValueError, match="so it takes embeddings"):
        load_model(tmp_path / "m.st", embedder="minilm")
