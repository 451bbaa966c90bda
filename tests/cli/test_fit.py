"""`varscale fit` and `predict`, on what people have."""

import csv
import io
import json
import re
import shutil

import numpy as np
import pytest
from conftest import TINY, classes
from PIL import Image

from varscale import FewShotClassifier
from varscale.cli.main import main


@pytest.fixture
def files(tmp_path):
    """Base classes, a few examples of others, and queries, with labels and without."""
    x, y = classes()
    np.savez(tmp_path / "base.npz", embeddings=x.astype(np.float16), labels=y)
    x, y = classes(seed=1, n_classes=3)
    names = np.array(["ape", "bee", "cat"])[y]
    few = np.arange(len(y)) % 20 < 2
    np.savez(tmp_path / "few.npz", features=x[few], labels=names[few])
    np.savez(tmp_path / "labelled.npz", X=x[~few], y=names[~few])
    np.save(tmp_path / "queries.npy", x[~few])
    return tmp_path


def run(capsys, *words):
    try:
        status = main([str(word) for word in words])
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    return status, out, err


def test_from_a_file_to_answers(files, capsys):
    status, out, _ = run(capsys, "fit", files / "base.npz", files / "base.st")
    assert status == 0
    assert "24 classes, 480 items of 16 numbers" in out
    assert re.search(r"Scale of these classes: [\d.]+, learned from these items\.", out)
    status, out, _ = run(
        capsys, "fit", files / "few.npz", files / "few.st", "--prior", files / "base.st", "--json"
    )
    facts = json.loads(out)
    assert status == 0
    assert facts["classes"] == 3
    assert facts["learned_on"] == 24
    assert facts["smallest_reject"] == 0.04
    few = FewShotClassifier.load(files / "few.st")
    assert facts["prior_scale"] == few.prior_.mean
    assert facts["scale"] == few.task_.alpha.item()
    assert facts["scale"] != facts["prior_scale"]  # the examples changed it

    status, out, _ = run(capsys, "predict", files / "few.st", files / "queries.npy")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0
    assert [row["item"] for row in rows] == [str(i) for i in range(54)]
    x = np.load(files / "queries.npy").astype(np.float32)
    clf = FewShotClassifier.load(files / "few.st")
    assert [row["label"] for row in rows] == clf.predict(x).tolist()
    expected = clf.predict_proba(x).max(1)
    np.testing.assert_allclose([float(row["probability"]) for row in rows], expected, atol=1e-5)
    unknown = [row["unknown"] == "1" for row in rows]
    assert unknown == clf.is_unknown(x, 0.1).tolist()

    words = ["predict", files / "few.st", files / "labelled.npz", "--reject", "0.2"]
    status, out, _ = run(capsys, *words, "--out", files / "a.csv", "--json")
    report = json.loads(out)
    assert status == 0
    assert report["items"] == 54
    assert report["accuracy"] == pytest.approx(
        np.mean(clf.predict(x) == np.repeat(list(clf.classes_), 18))
    )
    written = list(csv.DictReader((files / "a.csv").read_text().splitlines()))
    unknown = [row["unknown"] == "1" for row in written]
    assert unknown == clf.is_unknown(x, 0.2).tolist()
    status, out, _ = run(capsys, *words, "--json")
    assert json.loads(out)["answers"][0].keys() == {"item", "label", "probability", "unknown"}
    status, out, _ = run(capsys, *words, "--out", files / "a.csv")
    assert out.endswith(" % before rejecting.\n")


def test_more_items_are_added_and_nothing_is_learned(files, capsys):
    x, _ = classes(seed=1, n_classes=3)
    run(capsys, "fit", files / "few.npz", files / "few.st", "--prior", 15)
    before = FewShotClassifier.load(files / "few.st")
    np.savez(files / "more.npz", X=x[5:8], y=["ape", "dog", "dog"])
    words = ("fit", files / "more.npz", files / "few.st", "--add", files / "few.st")
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert "few.st: 4 classes, 9 items of 16 numbers." in out
    after = FewShotClassifier.load(files / "few.st")
    expected = before.partial_fit(x[5:8].astype(np.float32), ["ape", "dog", "dog"])
    np.testing.assert_array_equal(after.predict_proba(x), expected.predict_proba(x))
    assert after.prior_.mean == 15


def test_several_classes_for_each_item(files, capsys):
    run(capsys, "fit", files / "few.npz", files / "few.st", "--prior", 15)
    words = ("predict", files / "few.st", files / "queries.npy", "--top", 3)
    _, out, _ = run(capsys, *words)
    head = "item,label,probability,unknown,label_2,probability_2,label_3,probability_3"
    assert out.splitlines()[0] == head
    rows = list(csv.DictReader(io.StringIO(out)))
    clf = FewShotClassifier.load(files / "few.st")
    p = clf.predict_proba(np.load(files / "queries.npy").astype(np.float32))
    for row, values in zip(rows, p, strict=True):
        order = np.argsort(-values)
        ends = ("", "_2", "_3")
        assert [row[f"label{end}"] for end in ends] == clf.classes_[order].tolist()
        found = [float(row[f"probability{end}"]) for end in ends]
        np.testing.assert_allclose(found, values[order], atol=1e-5)
    _, out, _ = run(capsys, *words, "--json")
    assert list(json.loads(out)["answers"][0]) == head.split(",")
    status, _, err = run(capsys, *words[:-1], 4)
    assert status == 2
    assert "Expected --top from 1 to 3" in err


def test_splits_of_a_file(files, capsys):
    x, y = classes()
    homes = np.array(["train"] * 20 + ["test"] * 4)
    np.savez(
        files / "split.npz",
        embeddings=x,
        labels=y,
        class_names=[f"c{i}" for i in range(24)],
        class_split=homes,
    )
    status, out, _ = run(
        capsys, "fit", files / "split.npz", files / "m.st", "--split", "train", "--json"
    )
    assert json.loads(out)["classes"] == 20
    status, out, _ = run(capsys, "predict", files / "m.st", files / "split.npz", "--split", "test")
    assert len(out.splitlines()) == 1 + 80
    assert out.splitlines()[1].startswith("400,")  # its row in the file
    for words, message in (
        (["fit", files / "split.npz", files / "n.st", "--split", "val"], "has no val classes"),
        (["fit", files / "base.npz", files / "n.st", "--split", "val"], "has no splits"),
        (["predict", files / "m.st", files / "queries.npy", "--split", "val"], "Expected labels"),
    ):
        status, out, err = run(capsys, *words)
        assert (status, out) == (2, "")
        assert message in err


@pytest.mark.filterwarnings("default:.*examples that the model")
def test_images_and_a_run(tiny_images, tmp_path, capsys):
    options = {**TINY, "scaler": "svs", "steps": 3, "val_every": 0}
    words = [f"--{key}={value}" for key, value in options.items()]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    draw = np.random.default_rng(0)
    for name in ("one", "two", "three"):
        (tmp_path / "images" / name).mkdir(parents=True)
        centre = draw.uniform(60, 190, size=(12, 10, 3))
        for i in range(4):
            pixels = (centre + draw.normal(0, 20, size=(12, 10, 3))).clip(0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "images" / name / f"{i}.png")
    (tmp_path / "flat").mkdir()
    shutil.copy(tmp_path / "images" / "two" / "0.png", tmp_path / "flat" / "x.png")
    capsys.readouterr()
    embed = ["--embedder", f"run:{tmp_path / 'run'}"]
    status, out, _ = run(capsys, "fit", tmp_path / "images", tmp_path / "m.st", *embed, "--json")
    assert status == 0
    assert json.loads(out)["classes"] == 3
    status, out, err = run(capsys, "predict", tmp_path / "m.st", tmp_path / "flat")
    assert "1 of 1 items are examples that the model was fitted to" in err
    assert out.splitlines()[1].startswith("x.png,two,")
    status, out, err = run(capsys, "fit", tmp_path / "flat", tmp_path / "n.st", *embed)
    assert status == 2
    assert "folders named like the classes" in err
    status, out, err = run(capsys, "fit", tmp_path / "images", tmp_path / "n.st")
    assert "--embedder run:RUN" in err
    (tmp_path / "empty").mkdir()
    status, out, err = run(capsys, "fit", tmp_path / "empty", tmp_path / "n.st", *embed)
    assert "Expected images in" in err
    status, out, err = run(
        capsys, "fit", tmp_path / "images", tmp_path / "n.st", *embed, "--split", "val"
    )
    assert "leave out --split" in err
    assert not (tmp_path / "n.st").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "{}/queries.npy", "{}/m.st"], "Expected the classes of the items"),
        (["fit", "{}/none.npz", "{}/m.st"], "Expected a file at"),
        (["fit", "{}/base.npz", "{}/no/m.st"], "in an existing folder"),
        (
            ["fit", "{}/base.npz", "{}/m.st", "--prior", "{}/base.npz"],
            "Expected a model written by varscale fit, got",
        ),
        (["fit", "{}/base.npz", "{}/m.st", "--prior", "-3"], "Expected a scale > 0"),
        (["predict", "{}/none", "{}/queries.npy"], "got no file"),
        (["fit", "{}/base.npz", "{}/base.npz"], "a file to write that is not read"),
        (
            ["predict", "{}/base.npz", "{}/few.npz", "--out", "{}/few.npz"],
            "a file to write that is not read",
        ),
        (["predict", "{}", "{}/queries.npy"], "got a folder"),
        (["predict", "{}/base.npz", "{}/few.npz", "--out", "{}/no/a.csv"], "in an existing folder"),
        (["fit", "{}/base.npz", "{}/m.st", "--prior", "9", "--add", "{}/no"], "mutually exclusive"),
        (["fit", "{}/base.npz", "{}/m.st", "--add", "{}/no"], "got no file"),
        (["predict", "{}/few.npz", "{}/queries.npy"], "few.npz, an .npz file of embeddings"),
        (["predict", "{}/queries.npy", "{}/few.npz"], "queries.npy, an .npy file of embeddings"),
        (["predict", "{}/few.npz"], "MODEL and SOURCE; SOURCE is missing. Example: varscale pred"),
    ],
)
def test_wrong_input_is_one_sentence(files, capsys, words, message):
    status, out, err = run(capsys, *(word.format(files) for word in words))
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.filterwarnings("default")
def test_it_says_where_the_scale_comes_from(files, capsys):
    run(capsys, "fit", files / "base.npz", files / "base.st")
    np.savez(files / "one.npz", embeddings=np.eye(16)[:3], labels=["a", "b", "c"])
    for words, told in (
        (["few.npz", "m.st", "--prior", files / "base.st"], "these items and the 24 base classes"),
        (["one.npz", "m.st", "--prior", files / "base.st"], "learned from the 24 base classes of"),
        (["few.npz", "m.st"], "learned from these items."),
        (["one.npz", "m.st"], "Scale of these classes: 15, a guess."),
        (["few.npz", "m.st", "--prior", "9"], "Scale of these classes: 9, as given."),
        (["few.npz", "m.st", "--prior", "9"], "Give a --prior that was learned on more classes."),
    ):
        status, out, _ = run(capsys, "fit", files / words[0], files / words[1], *words[2:])
        assert status == 0
        assert told in out
    before = (files / "base.st").read_bytes()
    status, _, err = run(
        capsys, "fit", files / "few.npz", files / "base.st", "--prior", files / "base.st"
    )
    assert status == 2
    assert "a file to write that is not read" in err
    assert (files / "base.st").read_bytes() == before


def test_items_that_the_model_does_not_take(files, capsys):
    run(capsys, "fit", files / "few.npz", files / "m.st", "--prior", "9")
    np.savez(files / "wide.npz", embeddings=np.eye(17), labels=np.arange(17))
    for words, message in (
        (["predict", files / "m.st", files / "wide.npz"], "embeddings of 16 numbers, which the"),
        (["fit", files / "wide.npz", files / "n.st", "--add", files / "m.st"], "got 17."),
        (["predict", files / "m.st", "nothing"], "got a text: there is no file nothing."),
    ):
        status, out, err = run(capsys, *words)
        assert (status, out) == (2, "")
        assert message in err


@pytest.mark.filterwarnings("default")
def test_levels_that_cannot_be_promised(files, capsys):
    run(capsys, "fit", files / "base.npz", files / "base.st")
    run(capsys, "fit", files / "few.npz", files / "fixed.st", "--prior", "10")
    words = ["predict", files / "fixed.st", files / "queries.npy", "--reject", "0.1"]
    status, _, err = run(capsys, *words)
    assert status == 2
    assert "at least 10 classes" in err
    words = ["predict", files / "base.st", files / "queries.npy", "--reject", "0.01"]
    status, out, err = run(capsys, *words)
    assert status == 0
    assert "warning: Nothing is rejected at 0.01: only 24 base classes" in err
    assert ",1\n" not in out


def test_the_help_suggests_what_the_tutorial_does(capsys):
    _, out, _ = run(capsys, "predict", "--help")
    assert "--reject 0.1 " in out
    assert "0.05" not in out
