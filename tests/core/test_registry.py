import sys

import pytest

from varscale.core.registry import Registry


class Base:
    def __init__(self, *, weight: float = 1.0) -> None:
        self.weight = weight


class Child(Base):
    def __init__(self, size: int, **base: float) -> None:
        super().__init__(**base)
        self.size = size


@pytest.fixture
def registry():
    registry = Registry("thing")
    registry.register("child")(Child)
    return registry


def test_options_include_those_handed_on(registry):
    assert list(registry.options("child")) == ["size", "weight"]
    child = registry.create("child", size=3, weight=2.0)
    assert (child.size, child.weight) == (3, 2.0)


def test_unknown_names_and_options_name_the_nearest(registry):
    with pytest.raises(
        ValueError, match=r"Unknown thing 'chidl'; known: child. Did you mean 'child'"
    ):
        registry.create("chidl")
    with pytest.raises(ValueError, match=r"'wieght'; known: size, weight. Did you mean 'weight'"):
        registry.create("child", size=3, wieght=1.0)
    with pytest.raises(ValueError, match=r"known: child\.$"):
        registry["zzz"]


def test_a_text_is_not_a_number(registry):
    with pytest.raises(
        ValueError, match=r"number as the option 'weight' of the thing 'child', got 'x'"
    ):
        registry.create("child", size=3, weight="x")


def test_a_name_is_given_once(registry):
    with pytest.raises(ValueError, match="already"):
        registry.register("child")(Base)


def test_membership_and_iteration(registry):
    assert "child" in registry
    assert "other" not in registry
    assert list(registry) == ["child"]


def test_a_class_that_is_defined_again_replaces_itself(registry):
    again = type("Child", (Base,), {"__module__": Child.__module__})
    registry.register("child")(again)
    assert registry["child"] is again


def install(folder, name, *lines, code=""):
    """An installed package with entry points in the group `things`."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("\n".join(["[things]", *lines]))


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """A registry with entry points, good and bad."""
    code = "class Thing:\n    def __init__(self, size: int = 3) -> None: ...\nFIVE = 5\n"
    lines = ("mine = outside_things:Thing", "number = outside_things:FIVE")
    install(tmp_path, "outside_things", *lines, "child = outside_things:Thing", code=code)
    broken = ("broken = outside_broken:Thing", "twice = outside_broken:A")
    install(tmp_path, "outside_broken", *broken, code="import outside_lacking\n")
    install(tmp_path, "outside_third", "twice = outside_third:A")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry("thing", group="things")
    registry.register("child")(Child)
    yield registry
    for name in [name for name in sys.modules if name.startswith("outside_")]:
        del sys.modules[name]


def test_entry_points_are_imported_when_asked_for(offered):
    assert list(offered) == ["child", "broken", "mine", "number", "twice"]
    assert len(offered) == 5
    assert "mine" in offered
    assert "nothing" not in offered
    assert offered.name_of(3) is None
    assert offered["child"] is Child  # a member comes before an entry point of its name
    assert offered.origin("child") is None
    with pytest.raises(ValueError, match="known: broken, child, mine, number, twice"):
        offered["other"]
    assert offered.loaded() == ["child"]
    assert not any(name.startswith("outside_") for name in sys.modules)

    assert offered.defaults("mine") == {"size": 3}
    assert offered.create("mine").__class__ is offered["mine"]
    assert offered.origin("mine").dist.version == "1.2"
    assert offered.loaded() == ["child", "mine"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "broken",
            "The thing 'broken' of outside_broken 1.2 cannot be imported from outside_broken:Thing:"
            " ModuleNotFoundError: No module named 'outside_lacking'. Repair that package",
        ),
        ("number", "Expected a class at outside_things:FIVE, .* got 5. Repair"),
        ("twice", "offered by outside_\\w+ 1.2 and outside_\\w+ 1.2. Uninstall all but one"),
    ],
)
def test_a_broken_entry_point_is_told_to_who_asks_for_it(offered, name, message):
    with pytest.raises(ValueError, match=message):
        offered[name]
