"""The parser that all commands share: no abbreviations, short errors, `--json` everywhere."""

import difflib
import re
import sys
from typing import Any, NoReturn

from jsonargparse import ArgumentParser


class Parser(ArgumentParser):
    """An argument parser whose errors are one sentence, with the nearest known option.

    Args:
        **options: Arguments of jsonargparse's `ArgumentParser`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, allow_abbrev=False, **options)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong and exit with status 2."""
        sentence = " ".join(message.split()).rstrip(".")
        prog = self.prog.replace(" [options]", "")
        within = re.match(r"Subcommand '(\S+)' does not accept option '(\S+)'", sentence)
        missing = re.match(r"the following arguments are required: (\w+)\.(\S+)", sentence)
        wrong = re.search(r"unrecognized arguments: (--[\w.-]+)", sentence)
        known, got = self._option_string_actions, wrong[1] if wrong else None
        if within:  # a key in a config file
            command, key = within.groups()
            assert self._subcommands_action is not None
            own = self._subcommands_action._name_parser_map[command]
            known, got = own._option_string_actions, f"--{key}"
            prog, sentence = f"{prog} {command}", f"unknown key {key!r}"
        elif missing:
            prog, sentence = f"{prog} {missing[1]}", f"the option --{missing[2]} is required"
        nearest = difflib.get_close_matches(got, known, cutoff=0.6) if got else []
        meant = nearest[0][2:] if nearest and within else "".join(nearest[:1])
        hint = f"Did you mean {meant}?" if nearest else f"Try {prog} --help."
        sys.stderr.write(f"{prog}: {_plain(sentence)}. {hint}\n")
        raise SystemExit(2)


def _plain(sentence: str) -> str:
    """A complaint about a value, without the names of Python's types."""
    parts = re.fullmatch(r'Parser key "(\S+)": (.*?)\W*(?:Got|Given) value: (.*)', sentence)
    expected = re.findall(r"Expected an? (?:typing\.)?(Literal\[[^\]]*\]|<class '\w+'>)", sentence)
    if not parts or not expected:
        return sentence
    names = [re.sub(r"Literal\[(.*)\]|<class '(\w+)'>", r"\1\2", e) for e in expected]
    wanted = " or ".join(name for name in names if name != "NoneType")
    return f"{parts[1]}: expected {wanted}, got {parts[3]}"


def command(description: str, example: str) -> Parser:
    """A command's parser, with the option that every command has.

    Args:
        description: What the command does, in a sentence.
        example: A command line that works.
    """
    parser = Parser(description=description, epilog=f"Example: {example}")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    return parser
