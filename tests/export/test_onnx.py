"""The exported graph against the model it was made from."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import TINY

import varscale
from varscale.classifier import FewShotClassifier, learner
from varscale.cli.main import main
from varscale.export import classifier as onnx_classifier
from varscale.export import model as onnx_model
from varscale.export.model import FewShotGraph, export_model
from varscale.functional import log_softmax, query_logits
from varscale.items.sessions import open_session

pytest.importorskip("onnxscript", reason="needs the extra 'export'")
pytestmark = pytest.mark.usefixtures("as_user")  # tracing has sizes that shape checks cannot read

DIM = {"backbone": "identity", "backbone_options": {"dim": 6}}
CASES = {
    "svs": {"scaler": "svs", "metric": "cosine", "scaler_options": {"init": 8.0}},
    "shots": {
        "scaler": "d-svs",
        "metric": "euclidean",
        "scaler_options": {"family": "hierarchical", "init": 9.0},
        "shot_offset": 0.6,
    },
    "d-avs": {"scaler": "d-avs", "metric": "cosine", "scaler_options": {"hidden": 8}},
    "low rank": {"scaler": "d-avs-low-rank", "metric": "dot"},
    "unscaled": {"scaler": None},
    "norm": {"scaler": "fixed", "metric": "norm"},
    "matching": {"host": "matching", "scaler": "svs", "scaler_options": {"init": 8.0}},
}


def vary(model):
    """Weights as after a training: nothing at its start, where mistakes cancel."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("case", CASES)
def test_graph_equals_the_model(case, tmp_path):
    torch.manual_seed(0)
    model = vary(varscale.create(**{"host": "pn", **DIM, **CASES[case]})).eval()
    assert export_model(model, tmp_path / "model.onnx") < 1e-5


def test_a_large_scale_owes_its_difference_to_rounding(tmp_path, monkeypatch):
    """What single precision does to a cosine, a scale of 1,000 makes 1,000 times larger."""
    torch.manual_seed(0)
    options = {"scaler": "fixed", "scaler_options": {"alpha": 1000.0}}
    model = varscale.create("pn", backbone="tiny", metric="cosine", **options)
    assert export_model(model, tmp_path / "model.onnx") > 1e-5
    monkeypatch.setattr(onnx_model, "log_softmax", lambda x: log_softmax(1.001 * x))
    with pytest.raises(ValueError, match="differs from the model"):
        export_model(model, tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()


def test_a_whole_run_from_images_on_the_command_line(tmp_path, tiny_images, capsys):
    import onnxruntime

    run = tmp_path / "run"
    options = {**TINY, "scaler": "svs", "scaler_options.init": 8.0}
    options |= {"steps": 4, "val_every": 0, "n_shot": 2}
    words = [f"--{key}={value}" for key, value in options.items()]
    assert main(["train", *words, "--out", str(run)]) == 0
    capsys.readouterr()
    path = tmp_path / "tiny.onnx"
    assert main(["export", str(run), str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["difference"] < 1e-5
    assert report["item"] == [1, 8, 8]
    assert report["bytes"] == path.stat().st_size

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    model = varscale.load(run)
    generator = torch.Generator().manual_seed(3)
    for way in (2, 5, 20):
        for shots in ([1] * way, [10] * way, [1 + k % 4 for k in range(way)]):
            labels = torch.arange(way).repeat_interleave(torch.tensor(shots))
            support = torch.rand(len(labels), 1, 8, 8, generator=generator)
            query = torch.rand(5, 1, 8, 8, generator=generator)
            episode = varscale.Episode(support[None], labels[None], query[None], None, n_way=way)
            with torch.inference_mode():
                expected = model(episode)[0].exp().numpy()
            feed = {"support": support.numpy(), "labels": labels.numpy(), "query": query.numpy()}
            (got,) = session.run(None, feed)
            assert got.shape == (5, way)
            np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_number_that_no_support_has_gets_no_probability(tmp_path):
    import onnx
    import onnxruntime

    model = varscale.create(**{"host": "pn", **DIM, **CASES["shots"]}).eval()
    export_model(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    labels = np.array([0, 1, 3])
    (p,) = session.run(None, {"support": x, "labels": labels, "query": x})
    assert p.shape == (3, 4)
    assert (p[:, 2] == 0).all()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)
    graph = onnx.load(tmp_path / "m.onnx")
    assert graph.producer_name == "varscale"
    assert "0 to ways - 1" in graph.doc_string


@pytest.mark.parametrize("host", ["pn", "matching"])
def test_a_number_that_no_support_has_does_not_move_the_others(host, tmp_path):
    model = varscale.create(host, **DIM, scaler="svs", shot_offset=0.6).eval()
    export_model(model, tmp_path / "m.onnx")
    run = open_session((tmp_path / "m.onnx").read_bytes()).run
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    gap, none = (
        run(None, {"support": x, "labels": np.array(labels), "query": x})[0]
        for labels in ([0, 0, 1, 3], [0, 0, 1, 2])
    )
    np.testing.assert_allclose(np.delete(gap, 2, 1), none, atol=1e-6)


def fitted():
    """Classes of one to four examples, and a classifier whose prior was learned on others."""
    draw = np.random.default_rng(0)
    base, y = draw.normal(size=(24, 6)), np.repeat(np.arange(24), 10)
    learned = FewShotClassifier().fit(base[y] + 0.6 * draw.normal(size=(240, 6)), y).prior_
    labels = np.repeat(["a", "b", "c", "ü"], [1, 2, 3, 4])
    centres = 1 + draw.normal(size=(4, 6))[np.repeat(np.arange(4), [1, 2, 3, 4])]
    return FewShotClassifier(prior=learned).fit(centres + 0.6 * draw.normal(size=(10, 6)), labels)


@pytest.mark.parametrize("most", [2048, 5], ids=["whitened", "not whitened"])
def test_a_fitted_classifier_equals_its_graph(most, tmp_path, capsys, monkeypatch):
    import onnx
    import onnxruntime

    monkeypatch.setattr(learner, "MOST_DIMENSIONS", most)
    classifier = fitted()
    assert (classifier.prior_.whitening.matrix is None) == (most == 5)
    assert classifier.prior_.query_power != 0
    assert classifier.task_.place.weight > 0
    stored, path = tmp_path / "few.safetensors", tmp_path / "few.onnx"
    classifier.save(stored)
    assert main(["export", str(stored), str(path), "--reject", "0.3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["difference"] < 1e-5
    assert (report["item"], report["classes"], report["reject"]) == ([6], 4, 0.3)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    query = 1.5 * np.random.default_rng(1).normal(size=(200, 6)).astype(np.float32)
    assert session.run(None, {"query": np.full((1, 6), np.nan, np.float32)})[1].tolist() == [True]
    assert b".py" not in path.read_bytes()  # no paths of this machine
    for some in (query, query[:1], np.zeros((1, 6), np.float32)):
        probability, unknown, label = session.run(None, {"query": some})
        np.testing.assert_allclose(probability, classifier.predict_proba(some), atol=1e-5)
        assert label.tolist() == classifier.predict(some).tolist()
        assert (unknown == classifier.is_unknown(some, 0.3)).all()
    assert 0 < classifier.is_unknown(query, 0.3).mean() < 1
    metadata = {prop.key: json.loads(prop.value) for prop in onnx.load(path).metadata_props}
    assert metadata["classes"] == ["a", "b", "c", "ü"]
    assert metadata["reject"] == 0.3
    assert (metadata["takes"], metadata["embedder"]) == ("embedding", None)
    # by default it rejects as varscale predict does, and at 0 it rejects nothing
    assert main(["export", str(stored), str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reject"] == 0.1
    assert main(["export", str(stored), str(path), "--reject", "0"]) == 0
    assert "unknown (m,), never true" in capsys.readouterr().out
    _, unknown, _ = onnxruntime.InferenceSession(path).run(None, {"query": query})
    assert not unknown.any()


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    classifier, path = fitted(), tmp_path / "x.onnx"
    wrong = lambda *args, **more: 1.001 * query_logits(*args, **more)  # noqa: E731
    monkeypatch.setattr(onnx_classifier, "query_logits", wrong)
    with pytest.raises(ValueError, match="differs from the model"):
        onnx_classifier.export_classifier(classifier, path)
    assert not path.exists()


@pytest.mark.parametrize("prior", [None, 12.0], ids=["broad", "fixed"])
def test_a_classifier_without_base_classes_equals_its_graph(prior, tmp_path):
    draw, y = np.random.default_rng(0), np.repeat([10, 20, 30, 45], [2, 3, 4, 5])
    x = (
        2
        + draw.normal(size=(4, 6))[np.repeat(np.arange(4), [2, 3, 4, 5])]
        + 0.6 * draw.normal(size=(14, 6))
    )
    classifier, path = FewShotClassifier(prior=prior).fit(x, y), tmp_path / "x.onnx"
    assert onnx_classifier.export_classifier(classifier, path) < 1e-5
    query = (2 + draw.normal(size=(50, 6))).astype(np.float32)
    probability, unknown, label = open_session(path.read_bytes()).run(None, {"query": query})
    np.testing.assert_allclose(probability, classifier.predict_proba(query), atol=1e-5)
    assert not unknown.any()
    assert label.dtype == np.int64
    np.testing.assert_array_equal(label, classifier.predict(query))


def test_embeddings_far_from_the_origin_owe_their_difference_to_rounding(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(240, 16)), np.repeat(np.arange(24), 10)
    far = FewShotClassifier().fit(100 + x + 2 * x[y], y)
    assert onnx_classifier.export_classifier(far, tmp_path / "x.onnx") < 1e-4
    huge = FewShotClassifier(prior=5.0).fit(1e39 * x, y)
    with pytest.raises(ValueError, match="within the range of float32"):
        onnx_classifier.export_classifier(huge, tmp_path / "x.onnx")


def test_export_refuses_before_it_writes(tmp_path, capsys):
    stored = tmp_path / "few.safetensors"
    FewShotClassifier(prior=10.0).fit(np.eye(3), [0, 1, 2]).save(stored)
    before = stored.read_bytes()
    alias, folder = tmp_path / "few.onnx", tmp_path / "folder.onnx"
    mine = tmp_path / "mine.onnx"
    mine.write_bytes(b"precious")
    alias.symlink_to(stored)
    folder.mkdir()
    for words, said in [
        ([str(stored), str(stored)], "ending in .onnx"),
        ([str(stored), str(alias)], "that is not read"),
        ([str(stored), str(tmp_path / "no" / "x.onnx")], "in an existing folder"),
        ([str(stored), str(folder)], "in an existing folder"),
        ([str(stored), str(mine)], "or a graph that varscale wrote, got"),
        ([str(tmp_path / "no"), str(tmp_path / "x.onnx")], "which does not exist"),
        ([str(tmp_path), str(alias)], "that is not read"),
        ([str(stored), str(tmp_path / "x.onnx"), "--card", str(tmp_path / "x.onnx")], "of its own"),
        ([str(stored), str(tmp_path / "x.onnx"), "--reject", "0.1"], "at least 10 classes"),
        ([str(tmp_path), str(tmp_path / "x.onnx"), "--reject", "0.1"], "got a run directory"),
    ]:
        assert main(["export", *words]) == 2
        assert said in capsys.readouterr().err
    assert stored.read_bytes() == before
    assert mine.read_bytes() == b"precious"
    assert not (tmp_path / "x.onnx").exists()


def test_what_cannot_be_exported_is_refused(tmp_path):
    tadam = varscale.create("tadam", backbone="resnet12", backbone_options={"width": 1 / 16})
    with pytest.raises(ValueError, match="depends on the task"):
        FewShotGraph(tadam)


def test_export_says_what_is_not_installed(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["export", str(tmp_path), str(tmp_path / "x.onnx")]) == 2
    assert "pip install 'varscale[export]'" in capsys.readouterr().err


def test_the_command_prints_nothing_but_its_answer(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "varscale", "export", str(tmp_path / "none"), "x.onnx"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Expected a run directory" in result.stderr
