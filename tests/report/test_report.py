"""A page about runs: whole in itself, and with what was asked for in it."""

import re
import shutil
import sys
from html.parser import HTMLParser

import pytest
from paper.test_claims import arrays, row

from varscale.cli.main import main
from varscale.paper.results import Results
from varscale.report.html import page, render, table

TRAIN = {
    "dataset": "tiny-images", "backbone": "tiny", "metric": "cosine", "n_way": 3, "n_query": 4,
    "test_query": 4, "steps": 6, "val_every": 3, "val_episodes": 10, "accelerator": "cpu",
}  # fmt: skip


class Outline(HTMLParser):
    """Whether every element that opens also closes; what it refers to; headings."""

    def __init__(self):
        super().__init__()
        self.open, self.references, self.headings = [], [], []

    def handle_starttag(self, tag, attributes):
        self.references += [v for k, v in attributes if k in ("src", "href", "xlink:href")]
        if tag not in ("meta", "img", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.references += [v for k, v in attributes if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def outline(text):
    found = Outline()
    found.feed(text)
    assert found.open == []
    assert all(r.startswith(("#", "data:image/png;base64,")) for r in found.references)
    assert "<script" not in text
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org|purl\.org|matplotlib)", text)
    return found


@pytest.fixture(scope="module")
def runs(tiny_images, tmp_path_factory):
    pytest.importorskip("lightning_fabric", reason="needs the extra 'train'")
    folder = tmp_path_factory.mktemp("runs")
    for name, options in {"pn": {}, "dsvs": {"scaler": "d-svs"}}.items():
        settings = {**TRAIN, **options, "out": folder / name}
        words = [str(word) for key, value in settings.items() for word in (f"--{key}", value)]
        assert main(["train", *words]) == 0
    return folder


def test_runs(runs, tmp_path, capsys):
    out = tmp_path / "report.html"
    words = ["report", str(runs / "pn"), str(runs / "dsvs"), "--out", str(out), "--episodes", "50"]
    assert main(words) == 0
    text = out.read_text()
    found = outline(text)
    assert found.headings == [
        "Runs",
        "Learning and scale",
        "Reliability",
        "Confusion",
        "Worst tasks",
    ]
    assert text.count("<svg") == 4
    assert text.count("data:image/png") >= 6  # three worst tasks of each
    assert "50 episodes" in text
    assert "test0" in text  # a class of the confusion matrix


def test_runs_of_any_name_and_one_that_is_not_finished(runs, tmp_path):
    odd = tmp_path / "x" / "<img src=q>" / "a$\\frac$b"
    same = tmp_path / "y" / "<img src=q>" / "a$\\frac$b"
    for path in (odd, same):
        shutil.copytree(runs / "pn", path)
    (same / "result.json").unlink()
    lines = (same / "metrics.jsonl").read_text().splitlines(keepends=True)
    (same / "metrics.jsonl").write_text("".join(lines[:4]))
    out = tmp_path / "new" / "report.html"
    words = ["report", str(odd), str(same), "--out", str(out), "--episodes", "20"]
    assert main(words) == 0
    text = out.read_text()
    outline(text)
    assert "4 of 6: not finished" in text
    assert "x/&lt;img src=q&gt;/a$\\frac$b" in text
    assert "y/&lt;img src=q&gt;/a$\\frac$b" in text


def test_results(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="needs the extra 'train'")
    folder = tmp_path / "results"
    for config in (
        "pn_cosine_5w1s",
        "svs_learned_cosine_5w1s",
        "dsvs_euclidean_5w1s",
        "dsvs_cosine_5w1s",
    ):
        for seed in range(2):
            Results(folder).add(row(config, seed=seed), arrays(0.5))
    out = tmp_path / "page.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    found = outline(out.read_text())
    assert found.headings[:2] == ["What this is", "Claims"]
    assert found.headings[-1] == "What was run"
    assert "Table 2: what each scaler gains (small, miniimagenet32)" in found.headings
    assert not any("Table 6" in heading for heading in found.headings)
    assert "Entries of D-SVS's scale over training" in found.headings
    assert not any("generates" in heading for heading in found.headings)  # no D-AVS there

    target = tmp_path / "reproduce.md"
    assert main(["report", str(folder), "--markdown", str(target)]) == 0
    assert "| PN | 1-shot cosine | 42.20 ± 0.66 | 50.00 ± 0.00 | +7.80 |" in target.read_text()
    for option, file in (("--out", out), ("--markdown", target)):
        assert main(["report", str(folder), option, str(file)]) == 0  # again
        file.write_text("# My page")
        assert main(["report", str(folder), option, str(file)]) == 2
        assert "or a page that varscale wrote, got" in capsys.readouterr().err
        assert file.read_text() == "# My page"


def test_text_is_escaped():
    text = page("<b>", [("a & b", table(["<i>"], [["x < y\nz"], ["holds"]]))])
    outline(text)
    assert "<b>" not in text.replace("<body>", "")
    assert "<strong>x &lt; y</strong><br>z" in text
    assert '<span class="holds">holds</span>' in text


def test_nothing_to_draw():
    pytest.importorskip("matplotlib", reason="needs the extra 'train'")
    assert render(lambda figure: False) == ""


def test_a_page_without_matplotlib_says_what_it_leaves_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "needs matplotlib, <code>pip install matplotlib</code>" in render(lambda figure: None)


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "Expected a run directory" in capsys.readouterr().err
