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


def test_a_name_is_given_once(registry):
    with pytest.raises(ValueError, match="already"):
        registry.register("child")(Base)


def test_membership_and_iteration(registry):
    assert "child" in registry
    assert "other" not in registry
    assert list(registry) == ["child"]
