"""What a command prints at its end: one JSON object for programs, or text and tables for people."""

import json
import sys
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

if TYPE_CHECKING:
    from rich.table import Table


def reply(args: Namespace, report: Any, shown: "str | list[Table | str]") -> None:
    """Print a report with `--json`, else what to show of it: lines, or tables with sentences."""
    if args.json:
        sys.stdout.write(json.dumps(report) + "\n")
    elif isinstance(shown, str):
        sys.stdout.write(f"{shown}\n")
    else:
        from rich.console import Console

        console = Console(highlight=False)
        for part in shown:
            console.print(part, soft_wrap=isinstance(part, str))
