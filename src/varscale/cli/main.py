"""`varscale`: one program, a file per command."""

import sys
import warnings
from collections.abc import Sequence

from varscale.cli import (
    bench,
    claims,
    compare,
    data,
    demo,
    doctor,
    embed,
    evaluate,
    export,
    fit,
    ls,
    predict,
    report,
    reproduce,
    resume,
    train,
)
from varscale.cli.parser import Parser
from varscale.runs.run import Interrupted
from varscale.version import __version__

COMMANDS = {
    "demo": demo,
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "compare": compare,
    "reproduce": reproduce,
    "claims": claims,
    "report": report,
    "fit": fit,
    "predict": predict,
    "export": export,
    "embed": embed,
    "data": data,
    "ls": ls,
    "bench": bench,
    "doctor": doctor,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 when done, 2 when the input is wrong, 1 for anything else."""
    parser = Parser(
        prog="varscale", description="Learn the scale of a few-shot metric.", version=__version__
    )
    subcommands = parser.add_subcommands(dest="command")
    for name, command in COMMANDS.items():
        own = command.parser()
        subcommands.add_subcommand(name, own, help=own.description)
        if command is data:  # its own commands can only be added once it is one itself
            data.add_actions(own)
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        words = train.with_bases(words)
    except ValueError as error:
        sys.stderr.write(f"varscale: {error}\n")
        return 2
    args = parser.parse_args(words)

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        sys.stderr.write(f"varscale {args.command}: warning: {message}\n")

    try:
        with warnings.catch_warnings():
            warnings.showwarning = warn
            COMMANDS[args.command].run(args[args.command])
    except ValueError as error:
        sys.stderr.write(f"varscale {args.command}: {error}\n")
        return 2
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"varscale {args.command}: {error.strerror or error}{where}\n")
        return 1
    except Interrupted as stopped:
        sys.stderr.write(f"varscale {args.command}: {stopped}\n")
        return stopped.status
    except KeyboardInterrupt:
        sys.stderr.write(f"varscale {args.command}: interrupted\n")
        return 130
    return 0
