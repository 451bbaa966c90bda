"""The page that `--help` prints: options in groups, in words, without the names of types."""

import textwrap
from argparse import SUPPRESS, Action
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

LEFT = 30
"""Width of the column of options."""


def help_page(
    prog: str,
    description: str,
    example: str,
    actions: Iterable[Action],
    *,
    sections: Mapping[str, Sequence[str]],
    width: int,
) -> str:
    """The help of one command.

    Args:
        prog: The program and the command.
        description: What it does.
        example: A command line that works.
        actions: Its arguments and options.
        sections: Title and options of each part; options in none of them come last.
        width: Columns of the terminal.
    """
    known = {a.dest: a for a in actions if a.dest != "help" and a.help != SUPPRESS}
    grouped = {dest for dests in sections.values() for dest in dests}
    arguments = [dest for dest, action in known.items() if not action.option_strings]
    others = [dest for dest in known if dest not in {*grouped, *arguments}]
    others.sort(key=lambda dest: dest == "json")  # the option of every command comes last
    lines = [" ".join([prog, *(left(known[dest]) for dest in arguments), "[options]"]), ""]
    lines += textwrap.wrap(description, width, break_on_hyphens=False)
    lines += ["", f"Example: {example}"]
    for title, dests in {"Arguments": arguments, **sections, "Options": others}.items():
        if dests:
            lines += ["", title]
        for dest in dests:
            lines += _entry(known[dest], width)
    return "\n".join(lines) + "\n"


def left(action: Action) -> str:
    """An option or argument, with a placeholder for its value."""
    if not action.option_strings:
        name = str(action.metavar or action.dest.upper())
        shapes = {"+": f"{name} ...", "*": f"[{name} ...]", "?": f"[{name}]"}
        return shapes.get(str(action.nargs), name)
    option, hint = action.option_strings[0], _value_type(action)
    if action.nargs == 0 or option == "--print_config":  # whose value is optional
        return option
    if get_origin(hint) is dict:
        return f"{option}.KEY X"
    own = get_origin(hint) is Literal or hint is bool  # jsonargparse sets a metavar for these
    return f"{option} {action.metavar if action.metavar and not own else _placeholder(hint)}"


def _value_type(action: Action) -> Any:
    """The type of an option's value, without `None`."""
    hint = getattr(action, "_typehint", None)
    inner = [t for t in get_args(hint) if t is not type(None)]
    return inner[0] if type(None) in get_args(hint) and len(inner) == 1 else hint


def _placeholder(hint: Any) -> str:
    if get_origin(hint) is Literal:
        choices = "|".join(map(str, get_args(hint)))
        return choices if len(choices) <= 16 else "NAME"
    if get_origin(hint) is list:
        return "[A,B,...]"
    return {int: "N", float: "X", bool: "true|false", str: "NAME"}.get(hint, "N")


def _entry(action: Action, width: int) -> list[str]:
    """An option beside what it does and its default."""
    text = " ".join((action.help or "").split()).rstrip(".").replace("`", "")
    if text.split(" ")[0].isalpha():  # not a value, as in "small: ..."
        text = text[:1].upper() + text[1:]
    default = action.default
    if action.option_strings and action.nargs != 0 and default not in (None, SUPPRESS, {}):
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        text += f" (default {shown.lower() if isinstance(default, bool) else shown})"
    lines = textwrap.wrap(f"{text}.", max(width - LEFT, 30), break_on_hyphens=False)
    name = f"  {left(action)}"
    if len(name) >= LEFT:
        return [name, *(" " * LEFT + line for line in lines)]
    first, *rest = lines
    return [f"{name:{LEFT}}{first}", *(" " * LEFT + line for line in rest)]
