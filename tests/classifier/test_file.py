"""A classifier in a file: read back alike, or refused."""

import numpy as np
import pytest
import torch
from conftest import classes
from sklearn.base import clone

from varscale import FewShotClassifier

pytestmark = pytest.mark.usefixtures("as_user")  # shapes are checked where the parts are tested


@pytest.mark.parametrize("scaler", ["svs", "d-svs"])
def test_saved_and_loaded_it_answers_alike(scaler, tmp_path):
    x, y = classes()
    names = np.array([f"class {k}" for k in range(24)])[y]
    clf = FewShotClassifier(scaler=scaler, steps=20).fit(x, names)
    clf.save(tmp_path / "model.safetensors")
    twin = FewShotClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(twin.predict_proba(x), clf.predict_proba(x))
    assert np.array_equal(twin.predict(x, reject=0.05), clf.predict(x, reject=0.05))
    assert repr(twin.prior_) == repr(clf.prior_)
    assert twin.get_params()["scaler"] == scaler
    twin.partial_fit(x[:3] + 9, ["new and longer than the others"] * 3)
    assert "new and longer than the others" in twin.classes_
    refitted = clone(FewShotClassifier.load(tmp_path / "model.safetensors")).fit(x[:4], y[:4])
    assert refitted.prior_.mean == clf.prior_.mean  # what was loaded keeps its scale


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("centres", lambda t: t * torch.nan),
        ("centres", lambda t: t[:, 0]),
        ("centres", lambda t: t[1:]),
        ("counts", lambda t: t * 0),
        ("matrix", lambda t: t[:3]),
        ("mean", lambda t: t[:3]),
        ("weight", lambda t: -t),
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
        ("prior", lambda s: {**s, "n_classes": 0}),
        ("prior", lambda s: {**s, "centred": 0.5}),
        ("params", lambda p: {**p, "more": 1}),
        ("features", lambda f: ["a"]),
        ("features", lambda f: 3),
        ("own", lambda t: t[1:]),
        ("own", lambda t: t.long()),
        ("own", lambda t: t.double()),
    ],
)
def test_files_that_were_tampered_with_are_refused(base, tmp_path, name, change):
    import json

    from safetensors import safe_open
    from safetensors.torch import save_file

    base.save(tmp_path / "m")
    with safe_open(tmp_path / "m", framework="pt") as file:
        facts = json.loads(file.metadata()["varscale"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if name in tensors:
        tensors[name] = change(tensors[name]).contiguous()
    else:
        facts[name] = change(facts[name])
    save_file(tensors, tmp_path / "bad", {"varscale": json.dumps(facts)})
    with pytest.raises(ValueError, match="not a classifier that varscale saved"):
        FewShotClassifier.load(tmp_path / "bad")


def test_files_that_are_no_classifiers_are_refused(tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(ValueError, match="got no file"):
        FewShotClassifier.load(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    for name in ("text", "other"):
        with pytest.raises(ValueError, match="not a classifier that varscale saved"):
            FewShotClassifier.load(tmp_path / name)
