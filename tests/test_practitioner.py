"""docs/practitioner.md: every line of it runs, and prints what it says."""

import csv
import doctest
import re
import shlex
from pathlib import Path

import pytest

from varscale.cli.main import main

PAGE = Path(__file__).parent.parent / "docs" / "practitioner.md"


@pytest.mark.usefixtures("as_user")
def test_every_line_of_the_tutorial(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
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
    answers = list(csv.DictReader((tmp_path / "answers.csv").read_text().splitlines()))
    assert len(answers) == 1000
    assert set(answers[0]) == {"item", "class", "probability", "unknown"}
    assert {row["class"] for row in answers} == {"red", "green", "blue", "black", "white"}
