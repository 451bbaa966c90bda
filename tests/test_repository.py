"""The repository keeps its own rules: examples and documentation run, files stay small."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from varscale.backbones import BACKBONES
from varscale.hosts import HOSTS
from varscale.scalers import SCALERS

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["quickstart.py", "--steps", "2", "--episodes", "20"],
        ["own_scaler.py"],
        ["sentences.py"],
    ],
    ids=lambda a: a[0],
)
def test_examples_run(arguments):
    name, *options = arguments
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *options]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_every_example_is_run():
    parametrize = next(m for m in test_examples_run.pytestmark if m.name == "parametrize")
    covered = {arguments[0] for arguments in parametrize.args[1]}
    assert covered == {path.name for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_python_in_the_documentation_runs(page, monkeypatch):
    for registry in (BACKBONES, HOSTS, SCALERS):  # members of a page are gone after it
        monkeypatch.setattr(registry, "_members", dict(registry._members))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    for block in blocks:  # each alone, as people copy them
        exec(compile(block, page, "exec"), {})


def test_every_formula_has_its_number_in_the_documentation():
    text = (ROOT / "docs" / "method.md").read_text()
    cited = {n for p in SOURCES for n in re.findall(r"\((?:M\d+, )*(M\d+)\)", p.read_text())}
    defined = set(re.findall(r"^#+ (M\d+)\b", text, flags=re.MULTILINE))
    assert cited <= defined
    assert defined == {f"M{i}" for i in range(1, len(defined) + 1)}


def test_the_walks_name_methods_and_files_that_are_there():
    methods = {
        f"{node.name}.{part.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.FunctionDef)
    }
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`([A-Z]\w+\.[a-z_]+)(?=[`(])", text)) - {"CHANGELOG.md"}
    assert len(named) > 8
    assert named <= methods
    for file in re.findall(r"`(\w+/[\w/]+\.py)`", text):
        assert (ROOT / "src/varscale" / file).is_file() or (ROOT / file).is_file(), file
