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
        wrong = re.search(r"unrecognized arguments: (--[\w.-]+)", message)
        nearest = (
            difflib.get_close_matches(wrong[1], self._option_string_actions, cutoff=0.7)
            if wrong
            else []
        )
        prog = self.prog.replace(" [options]", "")
        hint = f"Did you mean {nearest[0]}?" if nearest else f"Try {prog} --help."
        sentence = " ".join(message.split()).rstrip(".")
        sys.stderr.write(f"{prog}: {sentence}. {hint}\n")
        raise SystemExit(2)


def command(description: str, example: str) -> Parser:
    """A command's parser, with the option that every command has.

    Args:
        description: What the command does, in a sentence.
        example: A command line that works.
    """
    parser = Parser(description=description, epilog=f"Example: {example}")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    return parser
