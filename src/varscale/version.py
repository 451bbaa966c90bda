"""The version, in one place."""

import subprocess
from pathlib import Path

__version__ = "0.1.0"


def source_commit() -> str:
    """Commit of the checkout that varscale is imported from; empty if it is not one."""
    found = [
        subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *words],
            capture_output=True,
            text=True,
            check=False,
        )
        for words in (("ls-files", "--error-unmatch", Path(__file__).name), ("rev-parse", "HEAD"))
    ]
    return "" if any(each.returncode for each in found) else found[1].stdout.strip()[:12]
