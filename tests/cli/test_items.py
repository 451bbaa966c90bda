"""`varscale fit` and `predict` on tables and pictures: what people have."""

import csv
import errno
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli.test_fit import run as shell
from own_items import LETTERS, WORDS, write_csv

from varscale import FewShotClassifier
from varscale.cli.main import main
from varscale.items import answer_file, job, read

NEW = ["papaya juice", "a zinc mine", "my mallet", "apple and banana", "drill"]


def run(capsys, *words):
    """Run a command. The embedder executes code, so it has to be named again to predict."""
    if words[0] == "predict" and "--embedder" not in words:
        home = Path(words[1]).parent / "letters.py"
        named = b"letters.py:embed" in Path(words[1]).read_bytes()
        words = (*words, "--embedder", f"python:{home}:embed") if named else words
    return shell(capsys, *words)


@pytest.fixture
def model(tickets, letters, tmp_path, capsys):
    """A model of the table, fitted in the shell."""
    words = ["fit", tickets, tmp_path / "m.st", "--text", "question", "--label", "intent"]
    status, out, _ = run(capsys, *words, "--embedder", letters)
    assert status == 0
    assert "m.st: 3 classes, 12 items of 26 numbers." in out
    return tmp_path / "m.st"


@pytest.fixture
def new(tmp_path):
    """New items with columns of the user's own, in his order."""
    rows = [(f"n{i}", text, "=1+1" if i else "-3") for i, text in enumerate(NEW)]
    write_csv(tmp_path / "new.csv", ["id", "question", "note"], rows)
    return tmp_path / "new.csv"


def test_a_table_to_answers_equals_the_path_of_embeddings(
    model, new, tickets, letters, tmp_path, capsys
):
    status, out, _ = run(capsys, "predict", model, new, "--out", tmp_path / "a.csv")
    assert status == 0
    assert "a.csv: 5 answers" in out
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert list(rows[0]) == ["id", "question", "note", "label", "probability", "unknown"]
    assert [row["question"] for row in rows] == NEW
    assert [row["note"] for row in rows] == ["-3"] + ["'=1+1"] * 4  # no spreadsheet runs it

    items = read(tickets)
    x, y = items.embed(letters)[0], items.labels
    clf = FewShotClassifier().fit(x, y)
    queries, _ = read(new, text="question").embed(letters)
    p = clf.predict_proba(queries)
    assert [row["label"] for row in rows] == clf.predict(queries).tolist()
    assert [float(row["probability"]) for row in rows] == [round(float(q), 6) for q in p.max(1)]
    np.savez(tmp_path / "x.npz", embeddings=x, labels=y)
    np.savez(tmp_path / "q.npz", embeddings=queries)
    run(capsys, "fit", tmp_path / "x.npz", tmp_path / "e.st")
    _, out, _ = run(capsys, "predict", tmp_path / "e.st", tmp_path / "q.npz")
    other = list(csv.DictReader(io.StringIO(out)))
    for column in ("label", "probability", "unknown"):
        assert [row[column] for row in other] == [row[column] for row in rows]


def test_top_and_sets_and_columns_of_the_same_name(model, tmp_path, capsys):
    write_csv(tmp_path / "n.csv", ["question", "label", "intent"], [(NEW[0], "mine", "fruit")])
    words = ["predict", model, tmp_path / "n.csv", "--top", 2, "--json"]
    status, out, _ = run(capsys, *words)
    report = json.loads(out)
    assert status == 0
    assert report["accuracy"] == 1.0  # by the column that the model was fitted to
    assert list(report["answers"][0]) == [
        *("question", "label", "intent"),
        *("predicted_label", "probability", "unknown", "label_2", "probability_2"),
    ]
    for option in ("--sets", "--reject"):
        status, _, err = run(capsys, *words, option, "0.1", "--out", tmp_path / "answers.csv")
        assert status == 2
        assert "sets of classes need a prior learned on at least 10 classes" in err
        assert not list(tmp_path.glob("*answers.csv*"))
        assert not list(tmp_path.glob(".*answers.csv*"))


def test_sets_are_those_of_the_classifier(tmp_path, capsys):
    draw, y = np.random.default_rng(0), np.repeat(np.arange(12), 8)
    x = draw.normal(size=(12, 16))[y] + 0.7 * draw.normal(size=(96, 16))
    np.savez(tmp_path / "x.npz", X=x, y=y)
    np.savez(tmp_path / "q.npz", X=x[::8] + 0.3)
    run(capsys, "fit", tmp_path / "x.npz", tmp_path / "m.st")
    _, out, _ = run(capsys, "predict", tmp_path / "m.st", tmp_path / "q.npz", "--sets", "0.2")
    clf = FewShotClassifier.load(tmp_path / "m.st")
    sets = clf.predict_set((x[::8] + 0.3).astype(np.float32), 0.2)
    found = [row["labels"] for row in csv.DictReader(io.StringIO(out))]
    assert found == ["|".join(clf.classes_[row].tolist()) for row in sets]


def test_one_text_and_one_picture(model, pictures, letters, tmp_path, capsys):
    for text in ("ripe papaya", "apple and/or papaya"):
        _, out, _ = run(capsys, "predict", model, text)
        assert out.splitlines()[1].startswith(f"{text},fruit,")
    run(capsys, "fit", pictures, tmp_path / "p.st", "--embedder", letters)
    pixels = pictures / "red" / "0.png"
    other = tmp_path / "red.png"
    other.write_bytes(pixels.read_bytes() + b"\0")  # another file, the same picture
    _, out, _ = run(capsys, "predict", tmp_path / "p.st", other)
    assert out.splitlines()[1].startswith(f"{other},red,")
    status, _, err = run(capsys, "predict", tmp_path / "p.st", tmp_path / "gone.png")
    assert status == 2
    assert "Expected a file or folder at" in err


@pytest.mark.filterwarnings("default:.*more than one label")
def test_unlabelled_items_are_left_out_and_conflicts_told(tmp_path, letters, capsys):
    rows = [(text, name) for name, texts in WORDS.items() for text in texts]
    write_csv(tmp_path / "t.csv", ["text", "label"], [*rows, ("what?", ""), (rows[0][0], "tools")])
    status, out, err = run(
        capsys, "fit", tmp_path / "t.csv", tmp_path / "m.st", "--embedder", letters
    )
    assert status == 0
    assert "13 items of 26 numbers (1 unlabelled left out)" in out
    assert "warning: Items with more than one label: 'apple pie' is fruit and tools." in err


def test_another_embedder_is_refused_by_name(model, new, letters, tmp_path, capsys):
    (tmp_path / "other.py").write_text(LETTERS + "\nx = 1\n")  # as many numbers
    other = f"python:{tmp_path / 'other.py'}:embed"
    for words in (
        ["predict", model, new, "--embedder", other],
        ["fit", new, tmp_path / "n.st", "--add", model, "--embedder", other],
    ):
        status, out, err = run(capsys, *words)
        assert (status, out) == (2, "")
        assert f"Expected the embedder that {model} was fitted with, {letters}" in err
        assert f"got {other}" in err
    words = ["fit", tmp_path / "tickets.csv", tmp_path / "n.st", "--prior", model]
    status, _, err = run(capsys, *words, "--embedder", other)
    assert status == 2
    assert "Expected a prior of the embedder" in err


def test_a_file_alone_executes_no_code(model, new, letters, capsys):
    assert main(["predict", str(model), str(new)]) == 2
    err = capsys.readouterr().err
    assert "it runs code, which a model file may not start by itself" in err
    assert f"name it: --embedder {letters}." in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "{m}", "{t}/q.npz"], "Expected texts or pictures, which"),
        (["predict", "{m}", "gone.tar.gz"], "Expected a file or folder at gone.tar.gz"),
        (["predict", "{m}", "gone.xlsx"], "Expected a file or folder at gone.xlsx, got none"),
        (["check", "{m}", "{t}/q.npz", "--embedder", "{l}"], "got embeddings"),
        (
            ["fit", "{t}/q.npz", "{t}/n.st", "--add", "{m}", "--embedder", "{l}"],
            "got embeddings",
        ),
        (["predict", "{m}", "{t}/other.csv"], "Name yours: --text COLUMN"),
        (["predict", "{m}", ""], "got an empty one"),
        (["fit", "picturs", "{t}/n.st", "--embedder", "{l}"], "'picturs', which is a single text"),
        (["check", "{m}", "picturs", "--embedder", "{l}"], "check its name"),
        (
            ["fit", "{t}/tickets.csv", "{t}/n.st", "--text", "intent", "--label", "intent"],
            "another column for the label",
        ),
        (["predict", "{m}", "{t}/gone.csv"], "Expected a file at"),
        (["fit", "{t}/tickets.csv", "{t}/n.st", "--embedder", "run:{t}"], "config.yaml"),
        (["fit", "{t}/q.npz", "{t}/n.st", "--embedder", "minilm"], "embeddings already"),
        (["fit", "{t}/pictures", "{t}/n.st"], "Pictures need an embedder"),
        (["predict", "{m}", "{t}/letters.py"], "Expected a table (.csv"),
        (["fit", "{t}/tickets.csv", "{t}/n.st", "--label", "intend"], "Did you mean 'intent'"),
    ],
)
def test_wrong_input_is_one_sentence(model, letters, pictures, tmp_path, capsys, words, message):
    np.savez(tmp_path / "q.npz", embeddings=np.eye(3), labels=[0, 1, 1])
    write_csv(tmp_path / "other.csv", ["quetsion"], [("x",)])
    given = [word.format(m=model, t=tmp_path, l=letters) for word in words]
    status, out, err = run(capsys, *given)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_an_interrupted_file_goes_on_where_it_was(model, new, tmp_path, capsys, monkeypatch):
    words = ["predict", model, new, "--out"]
    run(capsys, *words, tmp_path / "whole.csv")
    monkeypatch.setattr(job, "LARGEST_RAW", 2)
    seen = []
    write = answer_file.AnswerFile.add

    def stop_after_two(self, part):
        write(self, part)
        seen.append(part[0])
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(answer_file.AnswerFile, "add", stop_after_two)
    assert run(capsys, *words, tmp_path / "part.csv")[0] == 130
    assert not (tmp_path / "part.csv").exists()
    status, _, err = run(capsys, *words, tmp_path / "part.csv")
    assert status == 0
    assert "4 answers are there already" in err
    assert seen == [2, 4, 5]  # nothing was answered twice
    assert (tmp_path / "part.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not list(tmp_path.glob(".part.csv*"))

    seen.clear()
    assert run(capsys, *words, tmp_path / "part.csv")[0] == 130
    new.write_text(new.read_text() + "n9,other,\n")  # another table: all over again
    run(capsys, *words, tmp_path / "part.csv")
    assert seen[-3:] == [2, 4, 6]
    assert len((tmp_path / "part.csv").read_text().splitlines()) == 7


def test_a_full_disk_loses_nothing(model, new, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(job, "LARGEST_RAW", 2)
    real, calls = answer_file.write_whole, []

    def full(path, content):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr(answer_file, "write_whole", full)
    words = ["predict", model, new, "--out", tmp_path / "a.csv"]
    status, _, err = run(capsys, *words)
    assert status == 1
    assert "No space left on device; 2 answers are kept, repeat the command to go on" in err
    assert run(capsys, *words)[0] == 0
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 6


def test_unreadable_pictures_stay_without_an_answer(pictures, letters, tmp_path, capsys):
    run(capsys, "fit", pictures, tmp_path / "p.st", "--embedder", letters)
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").write_bytes((pictures / "red" / "0.png").read_bytes() + b"\0")
    (tmp_path / "flat" / "b.png").write_bytes(b"nothing")
    words = ["predict", tmp_path / "p.st", tmp_path / "flat"]
    status, _, err = run(capsys, *words)
    assert status == 2
    assert "b.png in" in err
    assert "--skip_bad" in err
    status, out, _ = run(capsys, *words, "--skip_bad")
    assert status == 0
    assert out.splitlines()[2] == "b.png,,,"


def test_empty_texts_stay_without_an_answer(model, tmp_path, capsys):
    (tmp_path / "some.csv").write_text("id,question\n1,lost card\n2, \n3,top up\n")
    words = ["predict", model, tmp_path / "some.csv"]
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert "row 2 of" in err
    assert "its text is empty. Repair it, or leave such items unanswered: --skip_bad" in err
    status, out, _ = run(capsys, *words, "--skip_bad")
    assert status == 0
    first, second, third = out.splitlines()[1:]
    assert second == "2, ,,,"
    assert first.split(",")[2]
    assert third.split(",")[2]


@pytest.mark.slow
def test_a_cluster_gives_the_same_file_though_a_worker_dies(tmp_path, capsys, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    import pyarrow.parquet as parquet

    from varscale.items import spread

    draw, y = np.random.default_rng(0), np.repeat(np.arange(12), 6)
    x = draw.normal(size=(12, 8))[y] + 0.5 * draw.normal(size=(72, 8))
    np.savez(tmp_path / "x.npz", X=x, y=y)
    run(capsys, "fit", tmp_path / "x.npz", tmp_path / "m.st")
    table = pa.table({"id": range(40_000), "vector": draw.normal(size=(40_000, 8)).tolist()})
    parquet.write_table(table, tmp_path / "q.parquet", row_group_size=7000)
    words = ["predict", tmp_path / "m.st", tmp_path / "q.parquet", "--out"]
    assert run(capsys, *words, tmp_path / "serial.csv")[0] == 0
    monkeypatch.setattr(spread, "BATCHES", 1)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
    ) as cluster:
        add, killed = answer_file.AnswerFile.add, []

        def kill_one(self, part):
            add(self, part)
            if not killed:
                killed.append(next(iter(cluster.workers.values())))
                killed[0].process.process.kill()

        monkeypatch.setattr(answer_file.AnswerFile, "add", kill_one)
        where = ["--scheduler", cluster.scheduler_address]
        assert run(capsys, *words, tmp_path / "cluster.csv", *where)[0] == 0
    assert killed
    assert (tmp_path / "cluster.csv").read_bytes() == (tmp_path / "serial.csv").read_bytes()
    assert len((tmp_path / "serial.csv").read_text().splitlines()) == 40_001


def test_names_of_classes_are_examples(tmp_path, letters, capsys):
    rows = [("ape ape", "ape"), ("zoo", "zoo_zoo"), ("ox", "ox")]
    write_csv(tmp_path / "t.csv", ["text", "label"], rows)
    words = ["fit", tmp_path / "t.csv", tmp_path / "m.st", "--embedder", letters, "--names"]
    assert run(capsys, *words, "--prior", 15)[0] == 0
    clf = FewShotClassifier.load(tmp_path / "m.st")
    assert clf.classes_.tolist() == ["ape", "ox", "zoo_zoo"]
    letters_of = dict(zip("abcdefghijklmnopqrstuvwxyz", clf.names_[2], strict=True))
    assert letters_of["z"] == pytest.approx(2.01)  # of "zoo zoo"
    np.savez(tmp_path / "x.npz", X=np.eye(3), y=["a", "b", "b"])
    status, _, err = run(capsys, "fit", tmp_path / "x.npz", tmp_path / "n.st", "--names")
    assert status == 2
    assert "need an embedder of texts" in err


def test_answers_to_a_file_of_answers(model, tmp_path, capsys):
    """Columns of the same name get another prefix, and stay in their places."""
    write_csv(tmp_path / "n.csv", ["question", "label"], [(NEW[0], "mine")])
    for given, out in (("n.csv", "a.csv"), ("a.csv", "b.csv")):
        words = ["predict", model, tmp_path / given, "--out", tmp_path / out]
        assert run(capsys, *words)[0] == 0
    head, row = csv.reader((tmp_path / "b.csv").read_text().splitlines())
    assert head[:5] == ["question", "label", "predicted_label", "probability", "unknown"]
    assert head[5:] == ["predicted_predicted_label", "predicted_probability", "predicted_unknown"]
    assert row[2:4] == row[5:7]


def test_a_folder_that_changed_is_another_job(pictures, letters, tmp_path, capsys):
    made = job.Job(str(tmp_path / "m"), str(pictures))
    before = made.stamps()
    (pictures / "red" / "1.png").write_bytes(b"other")
    assert made.stamps() != before


@pytest.mark.filterwarnings("default:.*examples that the model")
def test_a_worker_opens_a_model_that_changed_again(tmp_path, capsys):
    np.savez(tmp_path / "q.npz", X=np.eye(3))
    found = []
    for names in (["a", "b", "c"], ["x", "y", "zz"]):
        FewShotClassifier(prior=9.0).fit(np.eye(3), names).save(tmp_path / "m.st")
        made = job.Job(str(tmp_path / "m.st"), str(tmp_path / "q.npz"))
        found.append(job.answer_range(made, 0, 3)[0][1])
    assert "a" in found[0]
    assert "zz" in found[1]


def test_two_processes_do_not_write_one_file(model, new, tmp_path, capsys):
    out = tmp_path / "a.csv"
    with answer_file.AnswerFile(out, "work"):
        status, _, err = run(capsys, "predict", model, new, "--out", out)
    assert status == 2
    assert "Another process is writing" in err
    assert run(capsys, "predict", model, new, "--out", out)[0] == 0
    assert not list(tmp_path.glob(".a.csv*"))


def test_items_are_added_to_a_classifier_of_python(tmp_path, capsys):
    FewShotClassifier(prior=9.0).fit(np.eye(3), ["a", "b", "b"]).save(tmp_path / "m.st")
    np.savez(tmp_path / "more.npz", X=[[0.5, 0.1, 0.0]], y=["c"])
    words = ["fit", tmp_path / "more.npz", tmp_path / "n.st", "--add", tmp_path / "m.st"]
    assert run(capsys, *words)[0] == 0
    np.savez(tmp_path / "q.npz", X=np.eye(3))
    assert run(capsys, "predict", tmp_path / "n.st", tmp_path / "q.npz")[0] == 0


def test_a_table_without_the_label_can_be_checked_and_one_with_another_added(
    model, letters, tmp_path, capsys
):
    write_csv(tmp_path / "u.csv", ["question", "other"], [(text, "x") for text in NEW])
    words = ["check", model, tmp_path / "u.csv", "--embedder", letters]
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert "Label next" in out
    assert NEW[2] in out
    write_csv(tmp_path / "more.csv", ["question", "cls"], [("gold ring", "metal")])
    words = ["fit", tmp_path / "more.csv", tmp_path / "n.st", "--add", model, "--label", "cls"]
    status, out, _ = run(capsys, *words, "--embedder", letters)
    assert status == 0
    assert "13 items" in out


def test_files_of_the_user_are_not_replaced(tickets, letters, tmp_path, capsys):
    (tmp_path / "mine.csv").write_text("precious")
    words = ["fit", tickets, tmp_path / "mine.csv", "--embedder", letters]
    status, _, err = run(capsys, *words)
    assert status == 2
    assert "which is neither" in err
    assert (tmp_path / "mine.csv").read_text() == "precious"
    words = ["fit", tickets, tmp_path / "m.st", "--embedder", letters, "--card", tmp_path / "m.st"]
    assert "a card in a file of its own" in run(capsys, *words)[2]
    run(capsys, *words[:-2])
    (tmp_path / "folder").mkdir()
    words = ["predict", tmp_path / "m.st", "apple", "--out", tmp_path / "folder"]
    assert "Expected a file to write" in run(capsys, *words)[2]
    write_csv(tmp_path / "new.csv", ["question"], [("papaya",)])
    words = ["predict", tmp_path / "m.st", tmp_path / "new.csv", "--out", tmp_path / "mine.csv"]
    for text in (
        "precious", "label,probability\napple,1", '"open', "label,probability,unknown,reviewed",
        "my_predicted_label,my_predicted_probability,my_predicted_unknown", "label_2,labels",
    ):  # fmt: skip
        (tmp_path / "mine.csv").write_text(text)
        status, _, err = run(capsys, *words)
        assert status == 2
        assert "or answers that varscale wrote, got" in err
        assert (tmp_path / "mine.csv").read_text() == text
    words[-1] = tmp_path / "answers.csv"
    for more in ([], ["--top", 2], []):
        assert run(capsys, *words, *more)[0] == 0
    twice = ["predict", tmp_path / "m.st", tmp_path / "answers.csv", "--out", tmp_path / "b.csv"]
    for _ in range(2):  # its columns are called predicted_label and so on
        assert run(capsys, *twice)[0] == 0
    words[1:3] = [tmp_path / "m.st", tmp_path / "m.st"]
    words = ["check", tmp_path / "m.st", "--html", tmp_path / "mine.csv"]
    assert "or a page that varscale wrote, got" in run(capsys, *words)[2]
    words[-1] = tmp_path / "page.html"
    assert run(capsys, *words)[0] == run(capsys, *words)[0] == 0


@pytest.mark.filterwarnings("default:.*repeated")
def test_repeated_items_count_once(tickets, letters, tmp_path, capsys):
    lines = tickets.read_text().splitlines(keepends=True)
    (tmp_path / "twice.csv").write_text("".join([*lines, *lines[1:]]))
    words = ["fit", tmp_path / "twice.csv", tmp_path / "m.st", "--embedder", letters]
    status, out, err = run(capsys, *words)
    assert status == 0
    assert "12 items of 26 numbers" in out
    assert "12 items are repeated with the same label; each counts once" in err
    words = ["fit", tickets, tmp_path / "n.st", "--add", tmp_path / "m.st", "--embedder", letters]
    status, _, err = run(capsys, *words)
    assert status == 2
    assert "only some that the model has" in err


def test_items_that_are_all_examples_change_nothing(model, tickets, letters, tmp_path, capsys):
    _, plain, _ = run(capsys, "check", model)
    plain = plain.partition("\nTo see what")[0]
    words = ["check", model, tickets, "--embedder", letters, "--html", tmp_path / "c.html"]
    status, out, _ = run(capsys, *words)
    assert status == 0
    said = re.sub(r"row \d+: ", "", out).split()
    assert said[: len(plain.split())] == plain.split()
    assert "answers are right" in (tmp_path / "c.html").read_text()


def test_items_are_named_by_their_row(model, new, letters, tmp_path, capsys):
    words = ["check", model, new, "--embedder", letters, "--html", tmp_path / "c.html"]
    _, out, _ = run(capsys, *words)
    for number, text in enumerate(NEW, 1):
        assert f"row {number}: {text}" in out
        assert f"row {number}: {text}" in (tmp_path / "c.html").read_text()


def test_labels_that_the_model_does_not_know_are_not_wrong(model, tmp_path, capsys):
    rows = [(NEW[0], "fruit"), (NEW[1], "minerals")]
    write_csv(tmp_path / "n.csv", ["question", "intent"], rows)
    _, out, _ = run(capsys, "predict", model, tmp_path / "n.csv", "--json")
    assert json.loads(out)["accuracy"] == 1.0


def test_answers_are_a_csv_file(model, new, tmp_path, capsys):
    status, _, err = run(capsys, "predict", model, new, "--out", tmp_path / "a.parquet")
    assert status == 2
    assert "Expected the name of a CSV file" in err


def test_labels_are_missed_before_anything_is_embedded(new, letters, tmp_path, capsys):
    words = ["fit", new, tmp_path / "m.st", "--text", "question", "--embedder", letters]
    status, _, err = run(capsys, *words)
    assert status == 2
    assert "--label names their column" in err
    assert "embed:" not in err
