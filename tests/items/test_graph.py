"""Exported classifiers, loaded without torch."""

import json

import jaxtyping
import numpy as np
import pytest
from conftest import classes
from graphs import conv_file, token_file

from varscale import FewShotClassifier
from varscale.export import export_items
from varscale.items import (
    Columns,
    ItemModel,
    load_graph,
    load_model,
    make_embedder,
    open_items,
    read,
)

onnx = pytest.importorskip("onnx", reason="needs the extra 'export'")
TEXTS = {"delivery": ["where my parcel", "parcel late", "lost parcel"]}
TEXTS["account"] = ["forgot my password", "login lost", "my login password"]


@pytest.fixture(scope="module")
def learned():
    x, y = classes()
    return FewShotClassifier().fit(x.astype(np.float32), y)


@pytest.fixture(scope="module")
def exported(learned, tmp_path_factory):
    """The graph of a classifier of embeddings that rejects."""
    path = tmp_path_factory.mktemp("graph") / "m.onnx"
    model = ItemModel(learned, columns=Columns(embedding="vector", label="kind"))
    jaxtyping.config.update("jaxtyping_disable", True)  # as `as_user` does, which is too narrow
    export_items(model, path, reject=0.2)
    jaxtyping.config.update("jaxtyping_disable", False)
    return path


def test_embeddings_are_answered_as_by_the_classifier(exported, learned, tmp_path):
    model = load_graph(exported)
    assert (model.takes, model.reject) == ("embedding", 0.2)
    assert model.columns == Columns(embedding="vector", label="kind")
    assert model.classes == list(range(24))
    x = 2 * classes(seed=3)[0].astype(np.float32)
    np.savez(tmp_path / "q.npz", X=x)
    (batch,) = open_items(tmp_path / "q.npz").batches(1000)
    scores = model.score(batch)
    np.testing.assert_allclose(scores.probability, learned.predict_proba(x), atol=1e-5)
    unknown = learned.is_unknown(x, 0.2)
    assert 0 < unknown.mean() < 1
    assert scores.unknown.tolist() == unknown.tolist()
    assert scores.sets is None
    assert not scores.own.any()


def test_what_a_graph_does_not_take_is_one_sentence(exported, tmp_path):
    model = load_graph(exported)
    with pytest.raises(ValueError, match="Expected embeddings of shape 16, .* got 12. Make them"):
        model.run(np.zeros((3, 12), np.float32))
    x = np.zeros((3, 16), np.float32)
    x[2, 1] = np.nan
    with pytest.raises(ValueError, match="infinity in 1 of 3, first in number 2. Leave these out."):
        model.run(x)
    with pytest.raises(ValueError, match="takes embeddings; leave out --embedder"):
        load_graph(exported, embedder="minilm")


def test_graphs_of_others_are_one_sentence(exported, tmp_path):
    expected = "Expected a fitted classifier as varscale export writes it, got "
    with pytest.raises(ValueError, match=f"{expected}.*another program wrote. Write one: varscale"):
        load_graph(conv_file(tmp_path / "conv.onnx"))
    for key, value in (
        ("classes", "[1, 2"),
        ("classes", "[1, 2]"),  # of 24
        ("columns", '{"other": "x"}'),
        ("embedder", '{"spec": 3}'),
        ("takes", '"sound"'),
        ("reject", '"often"'),
    ):
        graph = onnx.load(exported)
        next(p for p in graph.metadata_props if p.key == key).value = value
        onnx.save(graph, tmp_path / "damaged.onnx")
        with pytest.raises(ValueError, match="whose metadata is damaged. Write one"):
            load_graph(tmp_path / "damaged.onnx")
    del graph.metadata_props[:]
    onnx.save(graph, tmp_path / "none.onnx")
    with pytest.raises(ValueError, match="which has no classes"):
        load_graph(tmp_path / "none.onnx")
    graph.graph.input[0].name = "support"
    for node in graph.graph.node:
        node.input[:] = ["support" if name == "query" else name for name in node.input]
    onnx.save(graph, tmp_path / "run.onnx")
    with pytest.raises(ValueError, match="a trained run, which takes its classes as an input"):
        load_graph(tmp_path / "run.onnx")
    (tmp_path / "text.onnx").write_text("not a graph")
    with pytest.raises(ValueError, match="text.onnx is not a readable ONNX file"):
        load_graph(tmp_path / "text.onnx")
    with pytest.raises(ValueError, match="got no file"):
        load_graph(tmp_path / "nowhere.onnx")
    with pytest.raises(ValueError, match="got a folder"):
        load_graph(tmp_path)


def test_texts_need_the_embedder_that_the_metadata_names(tmp_path, as_user):
    (tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"{t},{k}\n" for k, some in TEXTS.items() for t in some)
    )
    items = open_items(tmp_path / "t.csv")
    embedder = make_embedder(f"onnx:{token_file(tmp_path)}")
    fitted = ItemModel(FewShotClassifier(), embedder, items.used)
    fitted.add(read(tmp_path / "t.csv"), learn=True)
    path = tmp_path / "t.onnx"
    exported = export_items(fitted, path)
    assert (exported.item, exported.takes) == ([6], "text")
    model = load_graph(path)
    assert (model.takes, model.whole) == ("text", False)
    (batch,) = items.batches(10)
    expected = fitted.score(batch).probability
    np.testing.assert_allclose(model.score(batch).probability, expected, atol=1e-5)
    (tmp_path / "moved").mkdir()
    for name in ("tokens.onnx", "tokenizer.json"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    with pytest.raises(ValueError, match="If it has moved, say where"):
        load_graph(path)
    load_graph(path, embedder=f"onnx:{tmp_path / 'moved' / 'tokens.onnx'}")
    tokenizer = json.loads((tmp_path / "moved" / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {"late": 3, "lost": 2}  # other weights, as long
    (tmp_path / "moved" / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ValueError, match="Expected the embedder that .* was fitted with"):
        load_graph(path, embedder=f"onnx:{tmp_path / 'moved' / 'tokens.onnx'}")


def test_a_model_is_loaded_without_an_embedder_that_is_not_here(learned, tmp_path, as_user):
    about = {"embedder": {"spec": "sentence-transformers:nowhere", "identity": "0" * 64}}
    learned.save(tmp_path / "m.safetensors", about)
    with pytest.raises(ValueError, match="cannot be used here"):
        load_model(tmp_path / "m.safetensors")
    model = load_model(tmp_path / "m.safetensors", make=None)
    exported = export_items(model, tmp_path / "m.onnx", fitted=about["embedder"])
    assert exported.takes == "text"
    with pytest.raises(ValueError, match="cannot be used here"):
        load_graph(tmp_path / "m.onnx")


def test_a_graph_alone_never_executes_code(exported, tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')\n")
    graph = onnx.load(exported)
    facts = {"spec": f"python:{tmp_path / 'evil.py'}:embed", "identity": "0" * 64}
    next(p for p in graph.metadata_props if p.key == "embedder").value = json.dumps(facts)
    onnx.save(graph, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="it runs code, which a model file may not"):
        load_graph(tmp_path / "m.onnx")
