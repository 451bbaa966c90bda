"""The pairs of `examples/plug`: plain and scaled, three lines apart, and both run."""

import difflib
import importlib.util
import math
import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

from varscale.plug import LogitScale

FOLDER = Path(__file__).parents[2] / "examples" / "plug"
PAIRS = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.endswith("_scaled"))
NEEDS = {"lightning": "pytorch_lightning", "sentence_pairs": "sentence_transformers"}


@pytest.fixture
def scales(monkeypatch):
    """Every `LogitScale` that is made."""
    made, init = [], LogitScale.__init__

    def record(self, **options):
        init(self, **options)
        made.append(self)

    monkeypatch.setattr(LogitScale, "__init__", record)
    return made


def test_every_file_has_its_twin():
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == {*PAIRS, *(f"{name}_scaled" for name in PAIRS)}


@pytest.mark.parametrize("name", PAIRS)
def test_three_lines_make_the_difference(name):
    plain, ours = (
        [line for line in (FOLDER / f"{stem}.py").read_text().splitlines() if line.strip()]
        for stem in (name, f"{name}_scaled")
    )
    changes = [line for line in difflib.ndiff(plain, ours) if line[0] in "+-"]
    added = [line for line in changes if line.startswith("+")]
    assert 2 <= len(added) <= 3, changes
    assert len(changes) - len(added) < len(added)  # lines that went, for lines that came
    assert len(ours) <= 45


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.usefixtures("as_user")
def test_both_run(name, scales, monkeypatch, capsys):
    if (module := NEEDS.get(name)) and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for stem in (name, f"{name}_scaled"):
        monkeypatch.setattr(sys, "argv", [stem, "--steps", "3"])
        with warnings.catch_warnings():
            if name == "lightning":
                warnings.simplefilter("ignore")  # its own, about workers and torch
            runpy.run_path(str(FOLDER / f"{stem}.py"), run_name="__main__")
        said = capsys.readouterr().out
        assert math.isfinite(float(re.search(r"loss ([-\d.]+)", said).group(1)))
        assert len(scales) == stem.endswith("_scaled")
    (scale,) = scales
    assert f"{scale}" in said
    assert scale.shift.item() != 0
    assert scale.seen.item() > 0
