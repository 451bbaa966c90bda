"""The parser that all commands share: errors of one sentence, no abbreviations, `--json`."""

import inspect
import re
import shutil
import sys
import textwrap
from argparse import SUPPRESS, HelpFormatter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from jsonargparse import ArgumentParser, Namespace

from varscale.cli.commands import nearest
from varscale.cli.help import entry, left
from varscale.core.imports import import_located, locate_module

T = TypeVar("T")


class Parser(ArgumentParser):
    """A parser with errors of one sentence, and help without the names of Python's types."""

    example = ""  # a command line that works
    sections: Mapping[str, Sequence[str]] = MappingProxyType({})  # of the help, by title

    def format_help(self, formatter: HelpFormatter | None = None) -> str:
        """The page that `--help` prints."""
        width = terminal_width()
        known = {a.dest: a for a in self._actions if a.dest != "help" and a.help != SUPPRESS}
        arguments = [dest for dest, action in known.items() if not action.option_strings]
        grouped = {*arguments, *(dest for dests in self.sections.values() for dest in dests)}
        others = [dest for dest in known if dest not in grouped]
        others.sort(key=lambda dest: dest == "json")  # the option of every command comes last
        lines = [" ".join([self.prog, *(left(known[dest]) for dest in arguments), "[options]"]), ""]
        lines += textwrap.wrap(self.description or "", width, break_on_hyphens=False)
        lines += ["", f"Example: {self.example}"]
        for title, dests in {"Arguments": arguments, **self.sections, "Options": others}.items():
            lines += ["", title] if dests else []
            for dest in dests:
                lines += entry(known[dest], width)
        return "\n".join(lines) + "\n"

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong and exit with status 2."""
        sentence = " ".join(message.split()).rstrip(".")
        missing = re.match(r"the following arguments are required: (.*)", sentence)
        option = re.search(r"unrecognized arguments: (--[\w.-]+)", sentence)
        extra = re.match(r"unrecognized arguments: (.*)", sentence)
        valueless = re.match(r"argument (--[\w.-]+)\S*: expected one argument", sentence)
        key = re.match(r"Option '(\S+)' is not accepted", sentence)  # in a config file
        if missing:
            sentence = self._missing(missing[1].split(", "))
        elif option:
            sentence = f"unknown option {option[1]}. {self._meant(option[1][2:], '--')}"
        elif key:
            sentence = f"unknown key {key[1]!r}. {self._meant(key[1], '')}"
        elif extra:
            sentence = f"unexpected {extra[1]}. Example: {self.example}"
        elif valueless:
            sentence = f"{valueless[1]} needs a value. {self.prog} --help describes it."
        else:
            sentence = f"{_plain(sentence)}. {self.prog} --help describes the options."
        sys.stderr.write(f"{self.prog}: {sentence}\n")
        raise SystemExit(2)

    def nested(self) -> dict[str, str]:
        """Options of the command's parts: the name alone, and the name with its prefix."""
        return {}

    def _missing(self, names: list[str]) -> str:
        """A sentence about arguments that were not given."""
        order = {a.dest: left(a) for a in self._actions if not a.option_strings}
        lacking = [order[name] for name in names if name in order]
        if not lacking:
            what = f"the option --{names[0]} is required"
        elif len(order) == 1:
            (name,) = lacking
            what = f"{name} is missing".replace(" ... is missing", " is missing; give one or more")
        else:
            verb = "is" if len(lacking) == 1 else "are"
            what = (
                f"expected {len(order)} arguments, {' and '.join(order.values())}; "
                f"{' and '.join(lacking)} {verb} missing"
            )
        return f"{what}. Example: {self.example}"

    def _meant(self, got: str, dashes: str) -> str:
        """A hint at the nearest option."""
        own = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        inner = self.nested()
        found = nearest(got, [*own, *inner])
        if found is None:
            return f"{self.prog} --help lists the options."
        return f"Did you mean {dashes}{inner.get(found, found)}?"


def _plain(sentence: str) -> str:
    """A complaint about a value, without the names of Python's types."""
    parts = re.fullmatch(
        r'Parser key "(\S+)": (.*?)\W*(?:Got|Given) value: (.*?)'
        r"(?: - Expected .*| Given value type: .*)?",  # after an item of a list
        sentence,
    )
    expected = re.findall(r"Expected an? (?:typing\.)?(Literal\[[^\]]*\]|<class '\w+'>)", sentence)
    if not parts or not expected:
        return sentence
    names = [re.sub(r"Literal\[(.*)\]|<class '(\w+)'>", r"\1\2", e) for e in expected]
    names = [name.replace("', '", "' or '").replace("'", "") for name in names]
    plain = {"int": "a whole number", "float": "a number", "dict": "KEY VALUE pairs"}
    plain |= {"list": "a list such as [A,B]", "bool": "true or false", "str": "a name"}
    kinds = dict.fromkeys(plain.get(name, name) for name in names if name != "NoneType")
    wanted = " or ".join(kinds)
    return f"--{parts[1]}: expected {wanted}, got {parts[3]}"


def terminal_width() -> int:
    """Columns to print in."""
    return min(shutil.get_terminal_size((100, 24)).columns, 100)


def take(args: Namespace, kind: type[T]) -> T:
    """Make the dataclass whose fields are among the options."""
    given = args.as_dict()
    return kind(**{name: given[name] for name in inspect.signature(kind).parameters})


Run = Callable[[Namespace], None]

ACTIONS: dict[str, tuple[Callable[[], Parser], Run]] = {}
"""Parser and function of every command whose file has been imported."""


def option(name: str, text: str, kind: Any = None, **more: Any) -> tuple[str, dict[str, Any]]:
    """An option or argument of a command, as `add_argument` takes it.

    Args:
        name: Its name; then, after a space, what to call its value.
        text: What `--help` says about it.
        kind: Type of its value; by default that of the default, or text.
        **more: Other arguments of `add_argument`.
    """
    name, _, metavar = name.partition(" ")
    if metavar:
        more["metavar"] = metavar
    if "action" not in more:
        default = more.get("default")
        more["type"] = kind or (str if default is None else type(default))
        if default is None and (name.startswith("--") or more.get("nargs") == "?"):
            more["type"] |= None
    return name, {"help": text, **more}


IMPORT = option(
    "--import MODULE",
    "Module, or .py file, with members of yours; repeat it for several",
    action="append",
    default=[],
)
"""Option of commands that choose members by name; see `import_given`."""


def import_given(args: Namespace) -> None:
    """Import the modules of `--import`, which executes their code."""
    for name in args["import"]:
        import_located(locate_module(name))


def command(
    description: str,
    example: str,
    *options: tuple[str, dict[str, Any]] | type,
    kind: type[Parser] = Parser,
) -> Callable[[Run], Run]:
    """Make a function a command of the program, by the name that its example begins with.

    Options that are a dataclass stand for all its fields.
    """
    prog = " ".join(example.split()[: 3 if example.startswith("varscale data ") else 2])

    def make() -> Parser:
        parser = kind(prog=prog, description=description, allow_abbrev=False)
        parser.example = example
        parser.add_argument("--json", action="store_true", help="print one JSON object to stdout")
        for given in options:
            if isinstance(given, type):
                parser.add_class_arguments(given, None)
            else:
                parser.add_argument(given[0], **given[1])
        return parser

    def enter(run: Run) -> Run:
        ACTIONS[prog.removeprefix("varscale ")] = make, run
        return run

    return enter
