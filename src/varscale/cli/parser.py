"""The parser that all commands share: errors of one sentence, no abbreviations, `--json`."""

import re
import shutil
import sys
from argparse import HelpFormatter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace

from varscale.cli.commands import nearest
from varscale.cli.help import help_page, left


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
        return help_page(
            self.prog,
            self.description or "",
            self.example,
            self._actions,
            sections=self.sections,
            width=min(shutil.get_terminal_size((100, 24)).columns, 100),
        )

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
