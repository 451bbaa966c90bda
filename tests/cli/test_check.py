"""`varscale check`: what it prints, its JSON and its page."""

import json

import numpy as np
import pytest
from cli.test_fit import run
from conftest import classes
from PIL import Image
from report.test_report import outline

from varscale import FewShotClassifier
from varscale.report.check import Display, check_sections
from varscale.report.findings import describe_examples, describe_items
from varscale.report.html import page

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def base():
    return FewShotClassifier().fit(*classes())


@pytest.fixture
def files(tmp_path, base):
    """A model of four classes, one label wrong; unlabelled and labelled items."""
    x, y = classes(seed=1, n_classes=4, noise=0.7)
    names = np.array(["ape", "bee", "cat", EVIL])[y]
    few = np.arange(len(y)) % 20 < 5
    labels = names[few].copy()
    labels[7] = "ape"
    FewShotClassifier(prior=base.prior_).fit(x[few], labels).save(tmp_path / "m.st")
    np.save(tmp_path / "items.npy", x[~few])
    given = names[~few].copy()
    given[3] = "cat"
    given[4] = "zebra"
    np.savez(tmp_path / "labelled.npz", X=x[~few], y=given)
    return tmp_path


def test_what_the_examples_say(files, capsys):
    status, out, _ = run(capsys, "check", files / "m.st", "--json")
    facts = json.loads(out)["examples"]
    clf = FewShotClassifier.load(files / "m.st")
    assert status == 0
    assert (facts["classes"], facts["examples"], facts["fewest"], facts["single"]) == (4, 20, 4, 0)
    p = clf.leave_one_out()
    right = (p.argmax(1) == clf.labels_).mean()
    assert facts["accuracy"]["mean"] == pytest.approx(right)
    assert facts["accuracy"]["low"] < right < facts["accuracy"]["high"]
    assert facts["confidence"] == pytest.approx(p.max(1).mean())
    assert sum(group["answers"] for group in facts["reliability"]) == 20
    first = facts["suspicious"][0]
    assert (first["example"], first["label"], first["better"]) == (7, "ape", "bee")
    assert first["quality"] == pytest.approx(p[7, clf.labels_[7]])
    assert [told["more"] for told in facts["expected"]] == [0, 1, 2, 3, 5, 10]
    assert facts["expected"][-1]["mean"] == pytest.approx(clf.expected_accuracy(10).mean)
    status, out, _ = run(capsys, "check", files / "m.st", "--more", 4)
    assert status == 0
    assert "4 classes, 20 examples." in out
    assert "Labels to look at" in out
    assert "example 7" in out
    assert "To see what to label next: varscale check MODEL UNLABELLED" in out
    assert len(out.splitlines()) < 50


def test_what_to_label_next(files, capsys):
    words = ("check", files / "m.st", files / "items.npy", "--next", 4)
    status, out, _ = run(capsys, *words, "--json")
    found = json.loads(out)["items"]
    clf, x = FewShotClassifier.load(files / "m.st"), np.load(files / "items.npy")
    assert status == 0
    assert [line["item"] for line in found["next"]] == clf.next_to_label(x, 4).tolist()
    for line in found["next"]:
        row = x[line["item"]][None]
        assert line["class"] == clf.predict(row)[0]
        assert [n["example"] for n in line["nearest"]] == clf.nearest(row)[0][0].tolist()
    _, out, _ = run(capsys, *words)
    assert "Label next" in out


def test_labelled_items_are_judged(files, capsys):
    status, out, _ = run(capsys, "check", files / "m.st", files / "labelled.npz", "--json")
    found = json.loads(out)["items"]
    assert status == 0
    assert (found["items"], found["of_other_classes"]) == (60, 1)
    assert found["accuracy"]["of"] == 59
    assert 3 in [line["item"] for line in found["suspicious"]]
    _, out, _ = run(capsys, "check", files / "m.st", files / "labelled.npz")
    assert "Items with labels that it does not know: 1." in out
    assert "Accuracy on the items" in out


@pytest.mark.parametrize("items", ["items.npy", "labelled.npz", None])
def test_the_page_is_whole_and_safe(files, capsys, items):
    pytest.importorskip("matplotlib", reason="needs the extra 'train'")
    given = [files / items] if items else []
    status, out, _ = run(capsys, "check", files / "m.st", *given, "--html", files / "page.html")
    assert status == 0
    assert "page.html: the same as a page." in " ".join(out.split())
    text = (files / "page.html").read_text()
    found = outline(text)
    assert found.headings[:3] == ["Accuracy", "With more examples", "Labels to look at"]
    last = {"items.npy": "Label next", "labelled.npz": "Labelled items", None: "Confused classes"}
    assert found.headings[-1] == last[items]
    assert text.count("<svg") >= 2
    assert EVIL not in text


def test_texts_and_pictures_are_shown(files, tmp_path):
    clf, x = FewShotClassifier.load(files / "m.st"), np.load(files / "items.npy")
    Image.new("RGB", (300, 200), "red").save(tmp_path / "a.png")
    facts = {
        "examples": describe_examples(clf, more=3),
        "items": describe_items(clf, x, None, n_next=3),
    }
    texts = [f"text <{i}>" for i in range(20)]
    shown = Display("example", texts), Display("item", ["a.png"] * len(x), tmp_path)
    text = page("Check", check_sections(facts, *shown))
    outline(text)
    assert "text &lt;7&gt;" in text
    assert text.count("data:image/png;base64,") == 3
    missing = Display("item", ["gone.png"] * len(x), tmp_path)
    assert "gone.png" in page("Check", check_sections(facts, shown[0], missing))


def test_only_pictures_of_the_folder_are_shown(tmp_path, monkeypatch):
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("secret.png", "own/a.tif", "own/b.png"):
        Image.new("RGB", (30, 20), "red").save(tmp_path / name)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "broken.png").write_bytes((folder / "b.png").read_bytes()[:60])
    (folder / "circle.png").symlink_to(folder / "circle.png")
    Image.new("RGB", (9, 9)).save(folder / "ico.png", "ico")  # a format that is not read
    texts = [
        str(tmp_path / "secret.png"), "../secret.png", "link.png", "broken.png", "circle.png",
        "ico.png", f"{'x' * 5000}.png", "nul\0.png", "half\ud800.png", "a.tif", "b.png",
    ]  # fmt: skip
    names = Display("example", texts, folder)
    shown = ["<img" in names.html(place) for place in range(len(texts))]
    assert shown == [False] * 9 + [True] * 2
    assert names.html(0) == texts[0]
    assert names.html(6) == texts[6]
    monkeypatch.setattr("varscale.data.images.MAX_PIXELS", 599)
    assert names.html(10) == "b.png"
    monkeypatch.chdir(folder)
    assert Display("item", ["b.png"]).html(0) == "b.png"


def test_nothing_in_a_model_commands_the_terminal_or_stops_the_page(files, capsys):
    clf = FewShotClassifier.load(files / "m.st")
    labels = np.array(["a\x1b[31m", "b\x9b2J", "c\u202ed", "می\u200cخواهم"])[clf.labels_]
    FewShotClassifier(prior=clf.prior_).fit(clf.examples_, labels).save(
        files / "n.st", {"shown": ["\x1b]0;pwned\x07 one\ntwo \ud800"] * len(labels)}
    )
    items, html = files / "items.npy", files / "page.html"
    status, out, err = run(capsys, "check", files / "n.st", items, "--html", html)
    assert (status, err) == (0, "")
    assert "?]0;pwned? one two ?" in out
    assert not {*out} & {*"\x1b\x07\x9b\u202e\ud800"}
    assert "می\u200cخواهم" in out
    assert "one\ntwo ?" in html.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:These classes are unlike")
@pytest.mark.parametrize(
    ("n_classes", "message"), [(3, "every class has one alone"), (1, "one cl")]
)
def test_nothing_to_leave_out_is_said(tmp_path, base, capsys, n_classes, message):
    x, y = classes(seed=1, n_classes=n_classes, per_class=1)
    FewShotClassifier(prior=base.prior_).fit(x, y).save(tmp_path / "one.st")
    np.save(tmp_path / "x.npy", x)
    words = ("check", tmp_path / "one.st", tmp_path / "x.npy", "--html", tmp_path / "p.html")
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert message in out
    assert "Label next" in out
    outline((tmp_path / "p.html").read_text())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{}/m.st", "--next", "0"], "Expected --next of at least 1"),
        (["{}/m.st", "--more", "-1"], "Expected --more of at least 0"),
        (["{}/m.st", "--html", "{}/no/p.html"], "in an existing folder"),
        (["{}/m.st", "--html", "{}/m.st"], "a file to write that is not read"),
        (["{}/m.st", "{}/none.npz"], "Expected a file at"),
        (["{}/items.npy"], "an .npy file of embeddings"),
        ([], "MODEL"),
    ],
)
def test_wrong_input_is_one_sentence(files, capsys, words, message):
    status, out, err = run(capsys, "check", *(word.format(files) for word in words))
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_the_help_fits_a_screen(capsys):
    _, out, _ = run(capsys, "check", "--help")
    assert "varscale check MODEL [ITEMS]" in out
    assert len(out.splitlines()) < 80
