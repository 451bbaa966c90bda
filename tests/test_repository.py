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
LAYERS = [
    [
        "alignment",
        "allocator",
        "distributed",
        "files",
        "html",
        "labels",
        "pooling",
        "precision",
        "random",
        "registry",
        "shots",
        "version",
    ],
    [
        "functional",
        "film",
        "episode",
        "metrics",
        "checkpoint",
        "conformal",
        "held_out",
        "optimization",
        "logbook",
    ],
    ["scalers", "hosts", "backbones", "data", "whitening"],
    ["objective", "presets", "metric_learning", "cotraining", "learned_scale"],
    ["model", "classifier_file"],
    ["factory", "evaluation", "frozen", "onnx_graph"],
    ["config", "figures", "launch", "seen", "update"],
    ["config_files", "scale_learner"],
    ["run", "estimator"],
    ["training", "scoring", "featurize", "onnx_classifier"],
    ["bench", "paper", "report"],
    ["__init__"],
    ["cli"],
    ["__main__"],
]


@pytest.mark.parametrize(
    "arguments",
    [
        ["quickstart.py", "--steps", "2", "--episodes", "20"],
        ["torch_only.py", "--steps", "3"],
        ["plug_in.py", "--steps", "3"],
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


def test_plugging_in_takes_three_more_lines():
    def lines(name):
        text = (ROOT / "examples" / name).read_text()
        body = text[text.index("def main") :]
        return [line for line in body.splitlines() if line.strip()]

    assert len(lines("plug_in.py")) - len(lines("torch_only.py")) == 3


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


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short_and_imports_point_down(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    parts = path.relative_to(ROOT / "src" / "varscale").with_suffix("").parts
    level = layer(parts[0])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("varscale."):
            target = node.module.split(".")[1]
            assert layer(target) < level or target == parts[0] or level == 0, node.module


def layer(name):
    return next(i for i, names in enumerate(LAYERS) if name in names)


def test_every_formula_has_its_number_in_the_documentation():
    text = (ROOT / "docs" / "method.md").read_text()
    cited = {n for p in SOURCES for n in re.findall(r"\((?:M\d+, )*(M\d+)\)", p.read_text())}
    defined = set(re.findall(r"^#+ (M\d+)\b", text, flags=re.MULTILINE))
    assert cited <= defined
    assert defined == {f"M{i}" for i in range(1, len(defined) + 1)}
