"""Entries of the page that `--help` prints: in words, without the names of types."""

import textwrap
from argparse import SUPPRESS, Action
from typing import Any, Literal, get_args, get_origin

LEFT = 30
"""Width of the column of options."""


def left(action: Action) -> str:
    """An option or argument, with a placeholder for its value."""
    if not action.option_strings:
        name = str(action.metavar or action.dest.upper())
        shapes = {"+": f"{name} ...", "*": f"[{name} ...]", "?": f"[{name}]"}
        return shapes.get(str(action.nargs), name)
    option, hint = action.option_strings[0], getattr(action, "_typehint", None)
    inner = [t for t in get_args(hint) if t is not type(None)]
    if type(None) in get_args(hint) and len(inner) == 1:
        hint = inner[0]
    if action.nargs == 0 or option == "--print_config":  # whose value is optional
        return option
    if get_origin(hint) is dict:
        return f"{option}.KEY X"
    own = get_origin(hint) is Literal or hint is bool  # jsonargparse sets a metavar for these
    return f"{option} {action.metavar if action.metavar and not own else _placeholder(hint)}"


def _placeholder(hint: Any) -> str:
    if get_origin(hint) is Literal:
        choices = "|".join(map(str, get_args(hint)))
        return choices if len(choices) <= 16 else "NAME"
    if get_origin(hint) is list:
        return "[A,B,...]"
    return {int: "N", float: "X", bool: "true|false", str: "NAME"}.get(hint, "N")


def entry(action: Action, width: int) -> list[str]:
    """An option beside what it does and its default."""
    text = " ".join((action.help or "").split()).rstrip(".").replace("`", "")
    if text.split(" ")[0].isalpha():  # not a value, as in "small: ..."
        text = text[:1].upper() + text[1:]
    default = action.default
    if action.option_strings and action.nargs != 0 and default not in (None, SUPPRESS, {}, []):
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        text += f" (default {shown.lower() if isinstance(default, bool) else shown})"
    lines = textwrap.wrap(f"{text}.", max(width - LEFT, 30), break_on_hyphens=False)
    name = f"  {left(action)}"
    if len(name) < LEFT:
        name += " " * (LEFT - len(name)) + lines.pop(0)
    return [name, *(" " * LEFT + line for line in lines)]
