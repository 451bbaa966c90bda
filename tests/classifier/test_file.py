"""A classifier in a file: read back alike, or refused."""

import json

import numpy as np
import pytest
import torch
from conftest import classes
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import clone

from varscale import FewShotClassifier

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested


def test_saved_and_loaded_it_answers_alike(tmp_path):
    x, y = classes()
    names = np.array([f"class {k}" for k in range(24)])[y]
    clf = FewShotClassifier().fit(x, names)
    clf.save(tmp_path / "model.safetensors")
    twin = FewShotClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(twin.predict_proba(x), clf.predict_proba(x))
    assert np.array_equal(twin.predict(x, reject=0.05), clf.predict(x, reject=0.05))
    assert repr(twin.prior_) == repr(clf.prior_)
    assert twin.prior_.facts() == clf.prior_.facts()
    for name in ("classes_", "examples_", "labels_", "counts_"):
        assert np.array_equal(getattr(twin, name), getattr(clf, name)), name
    twin.partial_fit(x[:3] + 9, ["new and longer than the others"] * 3)
    assert "new and longer than the others" in twin.classes_
    refitted = clone(FewShotClassifier.load(tmp_path / "model.safetensors")).fit(x[:4], y[:4])
    assert refitted.prior_.mean == clf.prior_.mean  # what was loaded keeps its scale


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("examples", lambda t: t * torch.nan),
        ("examples", lambda t: t[:, 0]),
        ("examples", lambda t: t[1:]),
        ("examples", lambda t: t.half()),
        ("examples", lambda t: t.long()),
        ("examples", lambda t: None),
        ("labels", lambda t: t * 0),
        ("labels", lambda t: t - 1),
        ("labels", lambda t: t + 1),
        ("labels", lambda t: t[1:]),
        ("labels", lambda t: t.int()),
        ("labels", lambda t: t.double()),
        ("labels", lambda t: t[:, None]),
        ("matrix", lambda t: t[:3]),
        ("matrix", lambda t: t * torch.inf),
        ("origin", lambda t: t[:3]),
        ("origin", lambda t: t * torch.nan),
        ("origin", lambda t: None),
        ("shots", lambda t: t.flip(0)),
        ("quantiles", lambda t: t * torch.nan),
        ("quantiles", lambda t: t[:, :5]),
        ("fold_classes", lambda t: t * 0),
        ("classes", lambda c: c[::-1]),
        ("classes", lambda c: ["a"] * len(c)),
        ("prior", lambda s: {**s, "mean": -1.0}),
        ("prior", lambda s: {**s, "mean": float("nan")}),
        ("prior", lambda s: {**s, "shot_offset": "x"}),
        ("prior", lambda s: {}),
        ("prior", lambda s: {**s, "n_classes": 0.5}),
        ("prior", lambda s: {**s, "n_classes": 1}),
        ("prior", lambda s: {**s, "adapts": 0.5}),
        ("prior", lambda s: {**s, "adapts": None}),
        ("prior", lambda s: {**s, "top": 0.0}),
        ("prior", lambda s: {**s, "top": 1e-40}),
        ("prior", lambda s: {**s, "query_power": float("inf")}),
        ("prior", lambda s: {**s, "query_power": 130.0}),
        ("prior", lambda s: {**s, "spread": -0.1}),
        ("prior", lambda s: {**s, "within": -1.0}),
        ("prior", lambda s: {k: v for k, v in s.items() if k != "between"}),
        ("features", lambda f: ["a"]),
        ("features", lambda f: 3),
    ],
)
def test_files_that_were_tampered_with_are_refused(base, tmp_path, name, change):
    base.save(tmp_path / "m")
    with safe_open(tmp_path / "m", framework="pt") as file:
        facts = json.loads(file.metadata()["varscale"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if name in tensors:
        changed = change(tensors.pop(name))
        tensors |= {} if changed is None else {name: changed.contiguous()}
    else:
        facts[name] = change(facts[name])
    save_file(tensors, tmp_path / "bad", {"varscale": json.dumps(facts)})
    with pytest.raises(ValueError, match="which another version wrote or which is damaged"):
        FewShotClassifier.load(tmp_path / "bad")


def test_files_that_are_no_classifiers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="got no file"):
        FewShotClassifier.load(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    for name, message in (
        ("text", "which is another file"),
        ("other", "which is another file"),
    ):
        with pytest.raises(ValueError, match=message):
            FewShotClassifier.load(tmp_path / name)
