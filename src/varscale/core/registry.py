"""Registries: scalers, hosts, backbones and readers by name."""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

Options = Mapping[str, Any]
"""Keyword arguments by name."""

MOST_LISTED = 60
"""An error lists the known names up to this number."""


def unknown(kind: str, got: object, known: Collection[str]) -> ValueError:
    """ValueError that says what was asked for, what is known, and what was probably meant."""
    nearest = difflib.get_close_matches(str(got).lower(), known, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    listed = ", ".join(sorted(known)) if len(known) <= MOST_LISTED else f"{len(known)} others"
    return ValueError(f"Unknown {kind} {got!r}; known: {listed}.{hint}")


class Registry(Mapping[str, type[T]]):
    """Members of one family by name.

    Args:
        kind: What a member is called in messages.

    Example:
        >>> SHAPES = Registry("shape")
        >>> @SHAPES.register("disc")
        ... class Disc:
        ...     def __init__(self, radius: float = 1.0) -> None: ...
        >>> SHAPES.create("disk", radius=2.0)
        Traceback (most recent call last):
        ValueError: Unknown shape 'disk'; known: disc. Did you mean 'disc'?
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._members: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator that registers a member under `name`."""

        def enter(member: type[T]) -> type[T]:
            if name in self._members:
                raise ValueError(f"The {self.kind} {name!r} exists already: {self[name]}.")
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
        return self[name](**options)

    def name_of(self, member: object) -> str | None:
        """Name of an instance's class; `None` if it is not registered."""
        return next((name for name, cls in self.items() if type(member) is cls), None)

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

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._members:
            raise unknown(self.kind, name, self._members)
        return self._members[name]

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)
