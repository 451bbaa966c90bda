"""Small ONNX files that embed pictures or texts."""

import json

import numpy as np
import pytest

pytest.importorskip("onnxscript", reason="needs the extra 'export'")

from onnx import TensorProto, checker, helper, numpy_helper, save

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.25]


def conv_weights():
    return np.random.default_rng(1).normal(size=(7, 3, 3, 3)).astype(np.float32)


def conv_file(path, *, opset=17, batch="n", size=8, double=False):
    """Write a convolution, a rectifier and a mean over pixels, with a preprocessor beside it."""
    nodes = [
        helper.make_node("Conv", ["query", "probability"], ["classes"]),  # names of ours
        helper.make_node("Greater", ["classes", "zero"], ["image"]),
        helper.make_node("Where", ["image", "classes", "zero"], ["label"]),  # of NaN it makes 0
        helper.make_node("GlobalAveragePool", ["label"], ["pooled"]),
        helper.make_node("Cast", ["pooled"], ["out"], to=TensorProto.DOUBLE if double else 1),
    ]
    graph = helper.make_graph(
        nodes,
        "conv",
        [helper.make_tensor_value_info("query", TensorProto.FLOAT, [batch, 3, size, size])],
        [
            helper.make_tensor_value_info(
                "out", TensorProto.DOUBLE if double else TensorProto.FLOAT, [batch, 7, 1, 1]
            )
        ],
        [
            numpy_helper.from_array(conv_weights(), "probability"),
            numpy_helper.from_array(np.zeros(1, np.float32), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    checker.check_model(model)
    save(model, path)
    config = {"image_mean": MEAN, "image_std": STD, "size": {"height": 8}}
    (path.parent / "preprocessor_config.json").write_text(json.dumps(config))
    return path


def embed_plainly(pictures):
    """What `conv_file` computes, in plain loops and float64; pictures from 0 to 1."""
    column = (3, 1, 1)
    x = (pictures.astype(np.float64) - np.reshape(MEAN, column)) / np.reshape(STD, column)
    n, _, height, width = x.shape
    out = np.zeros((n, 7, height - 2, width - 2))
    for i in range(height - 2):
        for j in range(width - 2):
            window = x[:, :, i : i + 3, j : j + 3]
            out[:, :, i, j] = np.einsum("ncij,kcij->nk", window, conv_weights().astype(np.float64))
    return np.maximum(out, 0).mean((2, 3))


def token_file(folder):
    """Write an embedder of texts: a vector for each word, with its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "parcel", "late", "lost", "password", "login", "forgot", "where", "my"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(2).normal(size=(len(words), 6)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["out"])],
        "tokens",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "token"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", "token", 6])],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, folder / "tokens.onnx")
    return folder / "tokens.onnx"
