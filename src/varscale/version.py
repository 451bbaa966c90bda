"""The version, in one place."""

from pathlib import Path

__version__ = "0.1.0"


def source_commit() -> str:
    """Commit of the checkout that varscale is imported from; empty if it is not one."""
    import subprocess  # slow, and seldom needed

    here = Path(__file__)
    git = ["git", "-C", str(here.parent)]
    try:
        for words in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "HEAD"]):
            done = subprocess.run([*git, *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()[:12]
