"""A file of answers that is whole or absent, and goes on where it was interrupted."""

import csv
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from varscale.core.files import sync, write_whole
from varscale.items.answers import ADDED, RENAMED, Part, Tally


def has_answers(path: Path) -> bool:
    """Whether a CSV file has the columns of answers at its end, and none of the user's behind."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        try:
            header = next(csv.reader(file), [])
        except csv.Error:
            return False
    names = [re.sub(f"^({RENAMED})+", "", name) for name in header]
    while names and re.fullmatch(r"labels|(label|probability)_\d+", names[-1]):
        names.pop()
    return names[-len(ADDED) :] == ADDED


class AnswerFile:
    """A CSV file of answers that is whole or absent; an interrupted one goes on where it was.

    What is written lies beside it under a hidden name, with a note of how far it is and of what
    work it belongs to. Only one process at a time can write it.
    """

    def __init__(self, path: Path, work: object) -> None:
        from filelock import FileLock, Timeout

        path = path.resolve()  # a link stays
        self.path, self.lock = path, FileLock(path.with_name(f".{path.name}.lock"))
        try:
            self.lock.acquire(timeout=0)
        except Timeout as error:
            raise ValueError(
                f"Another process is writing {path}. Wait for it, or choose another file."
            ) from error
        self.part = path.with_name(f".{path.name}.part")
        self.note = path.with_name(f".{path.name}.part.json")
        self.key = hashlib.sha256(json.dumps(work, default=str).encode()).hexdigest()
        self.done, self.tally = 0, Tally()
        size = 0
        try:
            facts = json.loads(self.note.read_text())
            if facts["key"] == self.key and self.part.stat().st_size >= facts["bytes"]:
                self.done, size = int(facts["items"]), int(facts["bytes"])
                self.tally = Tally(**facts["tally"])
        except (OSError, ValueError, LookupError, TypeError):
            self.done, self.tally, size = 0, Tally(), 0
        self.resumed = self.done > 0
        self.file = self.part.open("r+b" if self.resumed else "wb")
        self.file.truncate(size)
        self.file.seek(size)

    def __enter__(self) -> "AnswerFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        Path(self.lock.lock_file).unlink(missing_ok=True)
        self.lock.release()

    def write(self, lines: str) -> None:
        """Add lines that no item belongs to: the header."""
        self._do(lambda: self.file.write(lines.encode(errors="surrogateescape")))

    def add(self, part: Part) -> None:
        """Add answers, and note that they are there."""
        done, lines, counted = part
        tally = Tally(**vars(self.tally))
        tally += counted

        def save() -> None:
            self.file.write(lines.encode(errors="surrogateescape"))
            self.file.flush()
            facts = {"key": self.key, "items": done, "bytes": self.file.tell()}
            write_whole(self.note, json.dumps({**facts, "tally": vars(tally)}).encode())

        self._do(save)
        self.done, self.tally = done, tally

    def finish(self) -> None:
        """Put the file into place."""

        def place() -> None:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self.part.replace(self.path)
            sync(self.path.parent)
            self.note.unlink(missing_ok=True)

        self._do(place)

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}; {self.done:,} answers are kept, repeat the command to go on",
                str(self.path),
            ) from error
