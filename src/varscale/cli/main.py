"""`varscale`: one program, a file per command, imported only when it is asked for."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from varscale.cli.commands import COMMANDS, data_overview, nearest, overview
from varscale.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns 0 when done, 2 if the input is wrong, 1 for anything else."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["--version"]:
        sys.stdout.write(f"varscale {__version__}\n")
        return 0
    depth = 1 if words[:1] == ["data"] else 0
    page = data_overview if depth else overview
    if words[depth:] and words[depth] in ("-h", "--help"):
        sys.stdout.write(f"{page()}\n")
        return 0
    if not words[depth:]:
        sys.stderr.write(f"Expected a command, got none.\n\n{page()}\n")
        return 2
    name = " ".join(words[: depth + 1])
    if name not in COMMANDS:
        meant = None if words[depth].startswith("-") else nearest(name, COMMANDS)
        where = "varscale data --help" if depth else "varscale --help"
        hint = f"Did you mean varscale {meant}?" if meant else f"{where} lists the commands."
        sys.stderr.write(f"varscale: unknown command {name!r}. {hint}\n")
        return 2
    try:
        return _run(name, words[depth + 1 :])
    except KeyboardInterrupt:
        sys.stderr.write(f"varscale {name}: interrupted\n")
        return 130


def _run(name: str, words: list[str]) -> int:
    from varscale.cli.parser import ACTIONS
    from varscale.core.interrupted import Interrupted
    from varscale.core.threads import sleep_soon

    sleep_soon()
    import_module(f"varscale.cli.{COMMANDS[name].module}")  # which registers it
    make, run = ACTIONS[name]

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        sys.stderr.write(f"varscale {name}: warning: {message}\n")

    try:
        args = make().parse_args(words)
        with warnings.catch_warnings():
            warnings.showwarning = warn
            run(args)
    except ValueError as error:
        sys.stderr.write(f"varscale {name}: {error}\n")
        return 2
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"varscale {name}: {error.strerror or error}{where}\n")
        return 1
    except Interrupted as stopped:
        sys.stderr.write(f"varscale {name}: {stopped}\n")
        return stopped.status
    return 0
