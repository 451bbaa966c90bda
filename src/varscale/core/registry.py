"""Registries: scalers, hosts, backbones and readers by name."""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

T = TypeVar("T")

Options = Mapping[str, Any]
"""Keyword arguments by name."""

NUMBERS = (bool, int, float, int | None, float | None)
"""Annotations of options that a text cannot be."""

MOST_LISTED = 60
"""An error lists the known names up to this number."""


def unknown(kind: str, got: object, known: Collection[str]) -> ValueError:
    """ValueError that says what was asked for, what is known, and what was probably meant."""
    nearest = difflib.get_close_matches(str(got).lower(), known, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    listed = ", ".join(sorted(known)) if len(known) <= MOST_LISTED else f"{len(known)} others"
    return ValueError(f"Unknown {kind} {got!r}; known: {listed}.{hint}")


class Registry(Mapping[str, type[T]]):
    """Members of one family by name; messages call a member by its `kind`.

    With a `group`, entry points of that group are members too: installed packages offer them. One
    is imported when it is asked for by name, so a broken one harms nobody else. A registered
    member comes before an entry point of the same name.

    Args:
        kind: What a message calls a member.
        group: Group of entry points.

    Example:
        >>> SHAPES = Registry("shape")
        >>> @SHAPES.register("disc")
        ... class Disc:
        ...     def __init__(self, radius: float = 1.0) -> None: ...
        >>> SHAPES.create("disk", radius=2.0)
        Traceback (most recent call last):
        ValueError: Unknown shape 'disk'; known: disc. Did you mean 'disc'?
    """

    def __init__(self, kind: str, *, group: str | None = None) -> None:
        self.kind = kind
        self.group = group
        self._members: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator that registers a member under `name`.

        A class that is defined again, as in a notebook, replaces itself.
        """

        def enter(member: type[T]) -> type[T]:
            there = self._members.get(name, member)
            if _address(there) != _address(member):
                raise ValueError(f"The {self.kind} {name!r} exists already: {there}.")
            self._members[name] = member
            return member

        return enter

    def create(self, name: str, /, **options: Any) -> T:
        """Build the member called `name`; an unknown or missing option raises ValueError."""
        known = self.options(name)
        for option in options:
            if option not in known:
                raise unknown(f"option of {self.kind} {name!r}:", option, known)
        for p in known.values():
            if p.default is p.empty and p.name not in options:
                raise ValueError(f"The {self.kind} {name!r} needs the option {p.name!r}, got none.")
        for option, value in options.items():
            if isinstance(value, str) and known[option].annotation in NUMBERS:
                raise ValueError(
                    f"Expected a number as the option {option!r} of the {self.kind} {name!r}, got "
                    f"{value!r}."
                )
        return self[name](**options)

    def name_of(self, member: object) -> str | None:
        """Name of an instance's class; `None` if it is not registered."""
        return next((name for name, cls in self._members.items() if type(member) is cls), None)

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """Arguments of a member, including those that it passes on to its base class."""
        found: dict[str, inspect.Parameter] = {}
        for cls in self[name].__mro__:
            if "__init__" in vars(cls):
                parameters = list(inspect.signature(cls).parameters.values())
                for p in parameters:
                    if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                        found.setdefault(p.name, p)
                if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                    break
        return found

    def defaults(self, name: str) -> dict[str, Any]:
        """Arguments of a member that have a default, and these defaults."""
        options = self.options(name).items()
        return {option: p.default for option, p in options if p.default is not p.empty}

    def loaded(self) -> list[str]:
        """Names of the members that are imported already."""
        return list(self._members)

    def origin(self, name: str) -> Any:
        """The entry point that offers a member; `None` if its package offers none."""
        package = self[name].__module__.partition(".")[0]
        offers = self._entries() if package != __name__.partition(".")[0] else []
        own = [e for e in offers if (e.name, e.module.partition(".")[0]) == (name, package)]
        return own[0] if own else None

    def _entries(self) -> list[Any]:
        """Entry points of the group, of the standard library's class or of its backport's."""
        return list(entry_points(group=self.group)) if self.group else []

    def _load(self, entry: Any) -> type[T]:
        """Import an entry point and register its class."""
        try:
            member = entry.load()
        except Exception as error:
            raise ValueError(
                f"The {self.kind} {entry.name!r} of {_package(entry)} cannot be imported from "
                f"{entry.value}: {type(error).__name__}: {error}. Repair that package, or "
                "uninstall it."
            ) from error
        if not isinstance(member, type):
            raise ValueError(
                f"Expected a class at {entry.value}, the {self.kind} {entry.name!r} of "
                f"{_package(entry)}, got {member!r}. Repair the entry point of that package."
            )
        return self.register(entry.name)(member)

    def __getitem__(self, name: str) -> type[T]:
        if name in self._members:
            return self._members[name]
        offers = [entry for entry in self._entries() if entry.name == name]
        if not offers:
            raise unknown(self.kind, name, list(self))
        if len({offer.value for offer in offers}) > 1:
            raise ValueError(
                f"The {self.kind} {name!r} is offered by {' and '.join(map(_package, offers))}. "
                "Uninstall all but one."
            )
        return self._load(offers[0])

    def __contains__(self, name: object) -> bool:
        return name in self._members or name in list(self)

    def __iter__(self) -> Iterator[str]:
        offered = sorted({entry.name for entry in self._entries()} - set(self._members))
        return iter([*self._members, *offered])

    def __len__(self) -> int:
        return len(list(iter(self)))


def _address(member: type) -> tuple[str, str]:
    return member.__module__, member.__qualname__


def _package(entry: Any) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
