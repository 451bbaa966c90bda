"""One graph from picture to label, against embedder and classifier one after the other."""

import json

import numpy as np
import pytest
from conftest import TINY
from graphs import conv_file, embed_plainly

from varscale.cli.main import main
from varscale.export import classifier as onnx_classifier
from varscale.export import pictures as onnx_pictures
from varscale.export.pictures import join, picture_embedder
from varscale.items import load_graph, load_model, make_embedder, open_items
from varscale.items.answers import Form, answer_batch
from varscale.items.sessions import open_session

pytestmark = pytest.mark.usefixtures("as_user")  # tracing has sizes that shape checks cannot read


def run(capsys, *words):
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def fitted(tmp_path, pictures, capsys):
    """A classifier of pictures whose embedder is an ONNX file."""
    file = conv_file(tmp_path / "conv.onnx")
    words = ["fit", pictures, tmp_path / "m.safetensors", "--embedder", f"onnx:{file}"]
    assert run(capsys, *words)[0] == 0
    return tmp_path


def test_an_onnx_embedder_becomes_part_of_the_graph(fitted, capsys):
    path = fitted / "m.onnx"
    status, out, _ = run(capsys, "export", fitted / "m.safetensors", path, "--json")
    assert status == 0
    report = json.loads(out)
    assert (report["item"], report["takes"], report["classes"]) == ([3, 8, 8], "image", 3)
    assert report["difference"] < 1e-5
    session = open_session(str(path))
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape[1:]) == ("image", "tensor(float)", [3, 8, 8])
    classifier = load_model(fitted / "m.safetensors").classifier
    pictures = np.random.default_rng(3).random((9, 3, 8, 8)).astype(np.float32)
    expected = classifier.predict_proba(embed_plainly(pictures))
    assert expected.argmax(1).std() > 0  # not one class for all
    for some in (slice(9), slice(1)):  # any number at a time
        probability, unknown, label = session.run(None, {"image": pictures[some]})
        np.testing.assert_allclose(probability, expected[some], atol=1e-5)
        assert label.tolist() == classifier.classes_[expected[some].argmax(1)].tolist()
        assert not unknown.any()
    meta = session.get_modelmeta()
    facts = {key: json.loads(value) for key, value in meta.custom_metadata_map.items()}
    assert meta.producer_name == "varscale"
    assert facts["classes"] == ["blue", "green", "red"]
    assert (facts["takes"], facts["channels"], facts["size"]) == ("image", 3, 8)
    assert facts["embedder"]["spec"] == f"onnx:{fitted / 'conv.onnx'}"
    assert facts["columns"] == dict.fromkeys(("text", "image", "embedding", "label"))
    # what no picture is: NaN, infinity, another size
    for value in (np.nan, np.inf, -np.inf):
        pictures[1, 2, 3, 3] = value
        probability, unknown, _ = session.run(None, {"image": pictures[:3]})
        assert np.isnan(probability[1]).all()
        assert unknown.tolist() == [False, True, False]
        np.testing.assert_allclose(probability[[0, 2]], expected[[0, 2]], atol=1e-5)
    with pytest.raises(Exception, match="invalid dimensions"):
        session.run(None, {"image": np.zeros((1, 3, 9, 8), np.float32)})


def test_answers_are_those_of_the_two_stages(fitted, capsys):
    run(capsys, "export", fitted / "m.safetensors", fitted / "m.onnx")
    (fitted / "conv.onnx").rename(fitted / "elsewhere.onnx")  # it is inside
    items = open_items(fitted / "pictures")
    (batch,) = items.batches(100)
    two = load_model(fitted / "m.safetensors", embedder=f"onnx:{fitted / 'elsewhere.onnx'}")
    one = load_graph(fitted / "m.onnx")
    np.testing.assert_allclose(
        one.score(batch).probability, two.score(batch).probability, atol=1e-5
    )
    # and a picture file that is broken stays without an answer, if asked
    batch.contents[4] = b"not a picture"
    with pytest.raises(ValueError, match=r"cannot be read: .*--skip_bad"):
        answer_batch(one, batch, Form(("item",)))
    scores = one.score(batch)
    assert list(scores.bad) == [4]
    whole = np.delete(np.arange(12), 4)
    expected = two.score(next(open_items(fitted / "pictures").batches(100))).probability
    np.testing.assert_allclose(scores.probability[whole], expected[whole], atol=1e-5)


def test_other_versions_and_types_of_an_embedder(fitted):
    classifier = load_model(fitted / "m.safetensors").classifier
    second = onnx_classifier.classifier_graph(classifier, None)
    pictures = np.random.default_rng(3).random((4, 3, 8, 8)).astype(np.float32)
    expected = classifier.predict_proba(embed_plainly(pictures))
    (own,) = (used.version for used in second.opset_import if used.domain == "")
    for option in ({"opset": 11}, {"opset": own}, {"opset": own + 2}, {"double": True}):
        embedder = make_embedder(f"onnx:{conv_file(fitted / 'other.onnx', size='s', **option)}")
        assert embedder.size == 8  # the graph leaves it open, the preprocessor does not
        graph = join(picture_embedder(embedder), second)
        probability = open_session(graph.SerializeToString()).run(None, {"image": pictures})[0]
        np.testing.assert_allclose(probability, expected, atol=1e-5)


def test_a_joined_graph_that_differs_is_not_written(fitted, capsys, monkeypatch):
    path = fitted / "m.onnx"
    complete = onnx_pictures._complete

    def wrong(graph, first):
        complete(graph, first)
        mean = next(t for t in graph.initializer if t.name == "picture/mean")
        mean.raw_data = np.float32([0.6, 0.4, 0.3]).tobytes()

    monkeypatch.setattr(onnx_pictures, "_complete", wrong)
    status, _, err = run(capsys, "export", fitted / "m.safetensors", path)
    assert status == 2
    assert "differs from the model" in err
    assert not path.exists()


def test_an_embedder_that_moved_changed_or_takes_one_picture(fitted, capsys):
    stored, path = fitted / "m.safetensors", fitted / "m.onnx"
    (fitted / "new").mkdir()
    for name in ("conv.onnx", "preprocessor_config.json"):
        (fitted / name).rename(fitted / "new" / name)
    status, _, err = run(capsys, "export", stored, path)
    assert status == 2
    assert "If it has moved, say where by --embedder." in err
    other = conv_file(fitted / "other.onnx", opset=16)
    status, _, err = run(capsys, "export", stored, path, "--embedder", f"onnx:{other}")
    assert status == 2
    assert "Expected the embedder that" in err
    assert not path.exists()
    words = ["export", stored, path, "--embedder", f"onnx:{fitted / 'new' / 'conv.onnx'}"]
    assert run(capsys, *words)[0] == 0
    one = make_embedder(f"onnx:{conv_file(fitted / 'one.onnx', batch=1)}")
    with pytest.raises(ValueError, match="got a graph for 1 at a time"):
        picture_embedder(one)


def test_a_run_becomes_part_of_the_graph(tiny_images, pictures, tmp_path, capsys):
    options = {**TINY, "scaler": "svs", "steps": 3, "val_every": 0}
    words = [f"--{key}={value}" for key, value in options.items()]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    stored = tmp_path / "m.safetensors"
    assert run(capsys, "fit", pictures, stored, "--embedder", f"run:{tmp_path / 'run'}")[0] == 0
    status, out, _ = run(capsys, "export", stored, tmp_path / "m.onnx")
    assert status == 0
    assert "Input: image (m, 1, 8, 8) in float32, from 0 to 1." in out
    assert b".py" not in (tmp_path / "m.onnx").read_bytes()  # no paths of this machine
    (batch,) = open_items(pictures).batches(100)
    two, one = load_model(stored), load_graph(tmp_path / "m.onnx")
    expected = two.score(batch).probability
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(one.score(batch).probability, expected, atol=1e-5)
