"""`varscale predict` of an exported graph: a process without torch and scikit-learn."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import classes
from graphs import conv_file, token_file

import varscale
from varscale.cli.main import main

HEAVY = ("torch", "sklearn", "scipy", "jaxtyping", "rich", "onnx", "dask", "varscale.classifier")
RUNNER = (
    "import sys; from varscale.cli.main import main; status = main(sys.argv[1:]); "
    f"loaded = [name for name in {HEAVY} if name in sys.modules]; "
    "sys.exit(f'loaded {loaded}' if loaded else status)"
)


def run(capsys, *words):
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def light(folder, *words, ok=True):
    """Run varscale in a new process, which must not import what is heavy."""
    env = {"PYTHONPATH": str(Path(varscale.__file__).parents[1]), "VARSCALE_HOME": str(folder)}
    command = [sys.executable, "-W", "error", "-c", RUNNER, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
    assert "Traceback" not in done.stderr, done.stderr
    assert "loaded" not in done.stderr, done.stderr
    assert (done.returncode == 0) is ok, done.stderr
    return done.stdout if ok else done.stderr


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def same_answers(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert list(one) == list(other)
        for column, value in one.items():
            if column.startswith("probability"):  # six decimals each
                assert float(value) == pytest.approx(float(other[column]), abs=1.2e-5)
            else:
                assert value == other[column]


@pytest.mark.usefixtures("as_user")
def test_embeddings(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = classes()
    np.savez(tmp_path / "base.npz", X=x, y=[f"class {k}" for k in y])
    np.savez(tmp_path / "q.npz", X=2 * classes(seed=3)[0], y=[f"class {k}" for k in y])
    stored, graph, card = (tmp_path / name for name in ("m.safetensors", "m.onnx", "README.md"))
    assert run(capsys, "fit", tmp_path / "base.npz", stored, "--card", card)[0] == 0
    assert "# m.safetensors" in card.read_text()
    assert "| base.npz | 480 | 0 | 0 |" in card.read_text()
    assert run(capsys, "export", stored, graph, "--card", card)[0] == 0
    assert "# m.onnx" in card.read_text()
    assert "| base.npz | 480 | 0 | 0 |" in card.read_text()
    words = ["predict", tmp_path / "q.npz", "--top", "2"]
    words.insert(1, graph)
    got = rows(light(tmp_path, *words))
    words[1] = stored
    expected = rows(run(capsys, *words)[1])
    same_answers(got, expected)
    assert {row["unknown"] for row in got} == {"0", "1"}
    said = light(tmp_path, "predict", graph, tmp_path / "q.npz", "--out", "a.csv", "--json")
    report = json.loads(said)
    assert report["reject"] == 0.1
    assert report["accuracy"] == pytest.approx(
        np.mean([row["label"] == f"class {k}" for row, k in zip(got, y, strict=True)])
    )
    np.savez(tmp_path / "short.npz", X=np.ones((3, 5)))
    for more, message in (
        ([graph, "q.npz", "--reject", "0.2"], "rejects at 0.1, as it was exported; leave out --re"),
        ([graph, "q.npz", "--sets", "0.2"], "need the file that varscale fit wrote"),
        ([graph, "short.npz"], "Expected embeddings of shape 16, as the graph takes them, got 5."),
        ([graph, "some text"], "Expected embeddings, which"),
        ([graph, "q.npz", "--embedder", "minilm"], "takes embeddings; leave out --embedder"),
        (["nowhere.onnx", "q.npz"], "got no file"),
    ):
        status, out, said = run(capsys, "predict", *more)
        assert (status, out) == (2, "")
        assert message in said
        assert len(said.splitlines()) == 1


@pytest.mark.usefixtures("as_user")
@pytest.mark.filterwarnings("ignore:.*examples that the model")
def test_pictures_of_a_table(pictures, tmp_path, capsys):
    lines = [f"pictures/{k}/{i}.png,{k}" for k in ("red", "green", "blue") for i in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(["file,colour", *lines]))
    conv_file(tmp_path / "conv.onnx")
    stored, graph = tmp_path / "m.safetensors", tmp_path / "m.onnx"
    columns = ["--image", "file", "--label", "colour"]
    embedder = ["--embedder", f"onnx:{tmp_path / 'conv.onnx'}"]
    assert run(capsys, "fit", tmp_path / "t.csv", stored, *columns, *embedder)[0] == 0
    assert run(capsys, "export", stored, graph)[0] == 0
    got = light(tmp_path, "predict", graph, "t.csv")  # by the column that it was fitted to
    assert list(rows(got)[0]) == ["file", "colour", "label", "probability", "unknown"]
    same_answers(rows(got), rows(run(capsys, "predict", stored, tmp_path / "t.csv")[1]))
    one = rows(light(tmp_path, "predict", graph, "pictures/red/0.png"))
    assert one[0]["probability"] == rows(got)[0]["probability"]
    said = light(tmp_path, "predict", graph, "t.csv", *embedder, ok=False)
    assert "has its embedder inside; leave out --embedder" in said
    (tmp_path / "pictures" / "red" / "3.png").write_bytes(b"broken")
    said = light(tmp_path, "predict", graph, "t.csv", ok=False)
    assert "row 4 of t.csv cannot be read" in said
    skipped = rows(light(tmp_path, "predict", graph, "t.csv", "--skip_bad"))
    assert [i for i, row in enumerate(skipped) if not row["label"]] == [3]


@pytest.mark.usefixtures("as_user")
@pytest.mark.filterwarnings("ignore:.*examples that the model")
def test_texts_whose_embedder_is_an_onnx_file(tmp_path, capsys):
    texts = {"a": ["my parcel", "parcel late"], "b": ["forgot password", "my login"]}
    lines = [f"{text},{k}" for k, some in texts.items() for text in some]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *lines]))
    stored, graph = tmp_path / "m.safetensors", tmp_path / "m.onnx"
    embedder = ["--embedder", f"onnx:{token_file(tmp_path)}"]
    assert run(capsys, "fit", tmp_path / "t.csv", stored, *embedder)[0] == 0
    status, out, _ = run(capsys, "export", stored, graph)
    assert status == 0
    assert f"The queries are embeddings of onnx:{tmp_path / 'tokens.onnx'}." in out
    got = rows(light(tmp_path, "predict", graph, "t.csv"))
    same_answers(got, rows(run(capsys, "predict", stored, tmp_path / "t.csv")[1]))
    assert rows(light(tmp_path, "predict", graph, "parcel lost"))[0]["label"] == "a"


def test_a_file_of_the_user_is_not_taken_for_a_card(tmp_path, capsys):
    x, y = classes(n_classes=3)
    np.savez(tmp_path / "few.npz", X=x, y=y)
    (tmp_path / "README.md").write_text("# Mine\n")
    words = ["fit", tmp_path / "few.npz", tmp_path / "m.st", "--card", tmp_path / "README.md"]
    status, _, err = run(capsys, *words)
    assert status == 2
    assert "or a card that varscale wrote, got" in err
    assert not (tmp_path / "m.st").exists()
    assert (tmp_path / "README.md").read_text() == "# Mine\n"
