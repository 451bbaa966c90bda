"""Progress on stderr: a live line with the time left on a terminal, plain lines otherwise."""

import sys
import time

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column


class Bar:
    """Shows the progress of a piece of work with a title."""

    def __init__(self, title: str) -> None:
        console = Console(stderr=True)
        self.title, self.plain = title, not console.is_terminal
        note = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # what is left of the line
        self.bar = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", table_column=note),
            console=console,
            disable=self.plain,
            expand=True,
        )
        self.task = self.bar.add_task(title, total=None, note="")
        self.start: tuple[float, int] | None = None  # a resumed run does not begin at 0
        self.tenth = 0  # that was written last

    def __enter__(self) -> "Bar":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` are done; without a terminal, one line per tenth."""
        if not self.plain:
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
