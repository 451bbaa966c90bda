"""Rooms and arrows: a room may import what stands on a line above its own, and no neighbour."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import varscale

SRC = Path(varscale.__file__).parent
LINES = """
version
core
functional
scalers | hosts | backbones | data
model
learn | evaluation
runs | classifier | plug | testing
items
export
report
paper | bench
cli
__main__
"""
LEVEL = {
    room: number
    for number, line in enumerate(LINES.strip().splitlines())
    for room in line.split(" | ")
}
FLOOR = {"__init__.py", "__main__.py", "version.py", "py.typed"}


def imported(text, module):
    """Rooms that a module imports, in whatever form: `module` is its own dotted name."""
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *filter(None, [node.module])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        else:
            continue
        for name in names:
            first, *rest = str(name).split(".")
            if first == "varscale":
                yield varscale._HOMES.get(rest[0], rest[0]) if rest else "__init__"


def edges(room, path, text):
    module = ".".join(["varscale", *path.relative_to(SRC).with_suffix("").parts])
    return [(room, other) for other in imported(text, module) if other != room]


def is_allowed(edge):
    room, other = edge
    return other in LEVEL and LEVEL[other] < LEVEL[room]


def room_files():
    return [(p.relative_to(SRC).parts[0], p) for p in SRC.rglob("*.py") if p.parent != SRC]


def test_every_import_points_to_a_line_above():
    found = Counter(e for room, p in room_files() for e in edges(room, p, p.read_text()))
    shown = "\n".join(
        f"{'' if is_allowed(edge) else '!! '}{edge[0]} -> {edge[1]}: {n}"
        for edge, n in sorted(found.items())
    )
    assert all(map(is_allowed, found)), f"edges between rooms, forbidden ones marked:\n{shown}"


@pytest.mark.parametrize(
    "line",
    [
        "from varscale.runs import load",
        "import varscale.runs.trainer",
        "from varscale import evaluate",
        "from varscale import evaluation",
        "from ..hosts import Host",
        "import importlib; importlib.import_module('varscale.cli.main')",
        "def late():\n    from varscale.data.sampler import EpisodeSampler",
    ],
)
def test_a_forbidden_import_is_seen_in_any_form(line):
    found = edges("scalers", SRC / "scalers" / "base.py", line)
    assert found
    assert not any(map(is_allowed, found))


def test_the_ground_floor_holds_rooms_and_a_handful_of_files():
    entries = {p for p in SRC.iterdir() if p.name not in ("__pycache__", "configs")}
    assert {p.name for p in entries if p.is_file()} == FLOOR
    assert {p.name for p in entries if p.is_dir()} <= set(LEVEL)


@pytest.mark.parametrize("room", sorted({room for room, _ in room_files()}))
def test_a_room_says_what_may_enter(room):
    assert ast.get_docstring(ast.parse((SRC / room / "__init__.py").read_text()))
