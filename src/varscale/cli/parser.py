"""The parser that all commands share: no abbreviations, short errors, plain help, `--json`."""

import re
import shutil
import sys
import textwrap
from argparse import SUPPRESS, Action, HelpFormatter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NoReturn, get_args, get_origin

from jsonargparse import ArgumentParser, Namespace

from varscale.cli.commands import nearest

LEFT = 30
"""Width of the column of options in a page of help."""


class Parser(ArgumentParser):
    """A parser with errors of one sentence, and help without the names of Python's types.

    Args:
        **options: Arguments of jsonargparse's `ArgumentParser`.
    """

    example = ""
    sections: Mapping[str, Sequence[str]] = MappingProxyType({})

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, allow_abbrev=False, **options)

    def read(self, words: list[str]) -> Namespace:
        """Parse a command line."""
        return self.parse_args(words)

    def format_help(self, formatter: HelpFormatter | None = None) -> str:
        """The page that `--help` prints."""
        width = min(shutil.get_terminal_size().columns, 100)
        hidden = ("help", SUPPRESS)
        actions = {a.dest: a for a in self._actions if not {a.dest, a.help} & {*hidden}}
        given = {dest for dests in self.sections.values() for dest in dests}
        arguments = [dest for dest, action in actions.items() if not action.option_strings]
        others = [dest for dest in actions if dest not in {*given, *arguments, "json"}]
        others += ["json"] if "json" not in given else []
        parts = {"Arguments": arguments, **self.sections, "Options": others}
        words = [self.prog, *(_left(actions[dest]) for dest in arguments), "[options]"]
        lines = [" ".join(words), ""]
        lines += textwrap.wrap(self.description or "", width, break_on_hyphens=False)
        lines += ["", f"Example: {self.example}"]
        for title, dests in parts.items():
            if dests:
                lines += ["", title]
            for dest in dests:
                lines += _entry(actions[dest], width)
        return "\n".join(lines) + "\n"

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong and exit with status 2."""
        sentence = " ".join(message.split()).rstrip(".")
        missing = re.match(r"the following arguments are required: (.*)", sentence)
        option = re.search(r"unrecognized arguments: (--[\w.-]+)", sentence)
        key = re.match(r"Option '(\S+)' is not accepted", sentence)  # in a config file
        if missing:
            sentence = self._missing(missing[1].split(", "))
        elif option:
            sentence = f"unknown option {option[1]}. {self._meant(option[1][2:], '--')}"
        elif key:
            sentence = f"unknown key {key[1]!r}. {self._meant(key[1], '')}"
        else:
            sentence = f"{_plain(sentence)}. Try {self.prog} --help."
        sys.stderr.write(f"{self.prog}: {sentence}\n")
        raise SystemExit(2)

    def nested(self) -> dict[str, str]:
        """Options of the command's parts: what they are called alone, and what they are called."""
        return {}

    def _missing(self, names: list[str]) -> str:
        """A sentence about arguments that were not given."""
        order = {a.dest: _left(a) for a in self._actions if not a.option_strings}
        lacking = [order[name] for name in names if name in order]
        if not lacking:
            return f"the option --{names[0]} is required. Example: {self.example}"
        if len(order) == 1:
            return f"expected {lacking[0].replace(' ...', ', or several')}. Example: {self.example}"
        verb = "is" if len(lacking) == 1 else "are"
        return (
            f"expected {len(order)} arguments, {' and '.join(order.values())}; "
            f"{' and '.join(lacking)} {verb} missing. Example: {self.example}"
        )

    def _meant(self, got: str, dashes: str) -> str:
        """A hint at the nearest option."""
        own = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        inner = self.nested()
        found = nearest(got, [*own, *inner])
        if found is None:
            return f"{self.prog} --help lists the options."
        return f"Did you mean {dashes}{inner.get(found, found)}?"


def _left(action: Action) -> str:
    """An option or argument with a placeholder of its value."""
    if not action.option_strings:
        name = str(action.metavar or action.dest.upper())
        return {"+": f"{name} ...", "*": f"[{name} ...]", "?": f"[{name}]"}.get(
            str(action.nargs), name
        )
    option, hint = action.option_strings[0], _type(action)
    if action.dest == "print_config" or action.nargs == 0:
        return option
    if get_origin(hint) is dict:
        return f"{option}.KEY X"
    chosen = get_origin(hint) is Literal or hint is bool  # jsonargparse has its own for these
    return f"{option} {_placeholder(hint) if chosen else action.metavar or _placeholder(hint)}"


def _type(action: Action) -> Any:
    """The type of an option's value, `None` aside."""
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
    text = " ".join((action.help or "").split()).rstrip(".")
    text = text[:1].upper() + text[1:]
    if action.option_strings and action.nargs != 0 and action.default not in (None, SUPPRESS, {}):
        shown = action.default
        shown = str(shown).lower() if isinstance(shown, bool) else shown
        text += f" (default {shown:g})" if isinstance(shown, float) else f" (default {shown})"
    left = f"  {_left(action)}"
    lines = textwrap.wrap(f"{text}.", max(width - LEFT, 30), break_on_hyphens=False)
    if len(left) >= LEFT:
        return [left, *(" " * LEFT + line for line in lines)]
    first, *rest = lines
    return [f"{left:{LEFT}}{first}", *(" " * LEFT + line for line in rest)]


def _plain(sentence: str) -> str:
    """A complaint about a value, without the names of Python's types."""
    parts = re.fullmatch(r'Parser key "(\S+)": (.*?)\W*(?:Got|Given) value: (.*)', sentence)
    expected = re.findall(r"Expected an? (?:typing\.)?(Literal\[[^\]]*\]|<class '\w+'>)", sentence)
    if not parts or not expected:
        return sentence
    names = [re.sub(r"Literal\[(.*)\]|<class '(\w+)'>", r"\1\2", e) for e in expected]
    plain = {"int": "a whole number", "float": "a number", "dict": "KEY VALUE pairs"}
    plain |= {"list": "a list such as [1,2]", "bool": "true or false", "str": "a name"}
    wanted = " or ".join(plain.get(name, name) for name in names if name != "NoneType")
    return f"--{parts[1]}: expected {wanted}, got {parts[3]}"


def command(
    description: str,
    example: str,
    *,
    sections: Mapping[str, Sequence[str]] | None = None,
    kind: type[Parser] = Parser,
) -> Parser:
    """A command's parser, with the option that every command has.

    Args:
        description: What the command does, in a sentence or two.
        example: A command line that works; it begins with the command's name.
        sections: Title and options of each part of the help; options in none of them come last.
        kind: Class of the parser.
    """
    prog = " ".join(example.split()[: 3 if example.startswith("varscale data ") else 2])
    parser = kind(prog=prog, description=description)
    parser.example, parser.sections = example, sections or {}
    parser.add_argument("--json", action="store_true", help="print one JSON object to stdout")
    return parser
