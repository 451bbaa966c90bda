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
    text = PAGE.read_text()
    lines = doctest.DocTestParser().get_doctest(text, {}, "practitioner.md", str(PAGE), 0)
    assert len(lines.examples) > 30
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(lines)
    assert runner.summarize().failed == 0, capsys.readouterr().out
    commands = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL))
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        assert program == "varscale"
        assert main(words) == 0, line
    answers = list(csv.DictReader((tmp_path / "answers.csv").read_text().splitlines()))
    assert len(answers) == 1000
    assert set(answers[0]) == {"item", "class", "probability", "unknown"}
    assert {row["class"] for row in answers} == {"red", "green", "blue", "black", "white"}


def test_the_comparison_is_what_the_rows_say(monkeypatch):
    monkeypatch.syspath_prepend(str(PAGE.parent.parent / "benchmarks"))
    import page

    assert page.PAGE.read_text() == page.page()
    rows = page.rows("embeddings.csv")
    assert len(rows) == 2 * 12 * 18
    assert {row["episodes"] for row in rows} == {"2000"}
