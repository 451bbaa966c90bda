"""Progress on stderr: a live line with the time left on a terminal, plain lines otherwise."""

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """Shows the progress of a piece of work with a title."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.bar = _live() if sys.stderr.isatty() else None
        self.task = None if self.bar is None else self.bar.add_task(title, total=None, note="")
        self.start: tuple[float, int] | None = None  # a resumed run does not begin at 0
        self.tenth = 0  # that was written last

    def __enter__(self) -> "Bar":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` are done; without a terminal, one line per tenth."""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, total=total, note=note)
            return
        if self.start is None:
            self.start = time.monotonic(), done
        tenth = 10 * done // max(total, 1)
        if done == total or tenth != self.tenth:
            self.tenth = tenth
            began, first = self.start
            left = ""
            if first < done < total:
                pace = (time.monotonic() - began) / (done - first)
                left = f", {pace * (total - done):.0f} s left"
            sys.stderr.write(
                f"{self.title}: {done:,} of {total:,}{left}{f'; {note}' if note else ''}\n"
            )


def _live() -> "Progress":
    """A line that changes; what draws it is imported for a terminal alone."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    note = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # what is left of the line
    return Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", table_column=note),
        console=Console(stderr=True),
        expand=True,
    )
