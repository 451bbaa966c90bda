"""Tables of a user: CSV, JSON lines and parquet files, some rows at a time."""

import csv
import json
import re
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from varscale.core.extras import needs

Cells = dict[str, list[Any]]
"""Cells of some rows, by column."""

LARGEST_CELL = 1_000_000
"""Characters of a cell, at most: a longer one is a file that lost a quotation mark."""
LONGEST_HEADER = 100
"""Lines of a header, at most, to look for what stands between its cells."""


class Table(ABC):
    """Rows of a file. A member knows its columns, and yields rows in the order of the file."""

    columns: list[str]

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def batches(self, size: int, start: int = 0, embedding: str | None = None) -> Iterator[Cells]:
        """Yield `size` rows at a time, from row `start` on: texts, and an array of `embedding`."""

    @abstractmethod
    def count(self) -> int:
        """Count the rows; raise ValueError for one that cannot be read, before work begins."""

    def lists(self) -> list[str]:
        """Columns of lists of numbers, which can be embeddings."""
        return []

    def where(self, row: int) -> str:
        """Say in a message where a row stands."""
        return f"row {row + 1} of {self.path}"


class CsvTable(Table):
    """A CSV file in UTF-8 with a header; cells end at commas, semicolons or tabs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(_lines(path))
        _, self.columns = next(self._records(), (0, []))
        if not any(name.strip() for name in self.columns):
            raise ValueError(f"Expected a header with the names of columns in {path}, got none.")
        if twice := {name for name, n in Counter(self.columns).items() if n > 1}:
            raise ValueError(
                f"Expected columns with different names in {path}, got {sorted(twice)[0]!r} twice."
            )

    def batches(self, size: int, start: int = 0, embedding: str | None = None) -> Iterator[Cells]:
        """Yield `size` rows at a time, from row `start` on."""
        rows = islice(self._rows(), start, None)
        while some := list(islice(rows, size)):
            yield {
                name: list(c) for name, c in zip(self.columns, zip(*some, strict=True), strict=True)
            }

    def count(self) -> int:
        """Count the rows."""
        return sum(1 for _ in self._rows())

    def _rows(self) -> Iterator[list[str]]:
        for line, row in islice(self._records(), 1, None):
            if row and len(row) != len(self.columns):
                raise ValueError(
                    f"Expected {len(self.columns)} cells in line {line} of {self.path}, "
                    f"as its header has, got {len(row)}. Put cells with {self.delimiter!r} into "
                    "quotation marks."
                )
            if row:
                yield row

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """The header and all rows, with the line that each ends in."""
        csv.field_size_limit(LARGEST_CELL)
        lines = _Watched(_lines(self.path))
        reader = csv.reader(lines, delimiter=self.delimiter)
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise self._explained(error, reader.line_num) from error
            if row is None:
                return
            if lines.ended:  # and yet there was a row: it waited for a quotation mark
                opened = reader.line_num - row[-1].removesuffix("\n").count("\n")
                raise ValueError(
                    f"Expected the end of a quoted cell that begins in line {opened} of "
                    f"{self.path}, got the end of the file. Close its quotation mark, or double it "
                    "if it belongs to the text."
                )
            yield reader.line_num, row

    def _explained(self, error: csv.Error, line: int) -> ValueError:
        if "new-line" in str(error):
            return ValueError(
                f"Expected lines that end in a line feed in {self.path}, got a carriage return "
                f"alone in line {line}. Save it with Unix or Windows line ends."
            )
        why = str(error)
        if "field larger" in why:
            why = f"a cell of more than {LARGEST_CELL:,} characters"
        return ValueError(
            f"Line {line} of {self.path} cannot be read: {why}. Is a quotation mark missing before "
            "it?"
        )


class JsonTable(Table):
    """A file with one JSON object per line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        columns, self._count = dict[str, None](), 0
        for row in self._rows():
            columns.update(dict.fromkeys(row))
            self._count += 1
        self.columns = list(columns)

    def batches(self, size: int, start: int = 0, embedding: str | None = None) -> Iterator[Cells]:
        """Yield `size` rows at a time, from row `start` on."""
        rows = islice(self._rows(), start, None)
        while some := list(islice(rows, size)):
            cells: Cells = {name: [""] * len(some) for name in self.columns}
            for i, row in enumerate(some):
                for name, value in row.items():
                    cells[name][i] = _shown(value)
            yield cells

    def count(self) -> int:
        """Count the rows."""
        return self._count

    def _rows(self) -> Iterator[dict[str, Any]]:
        for number, text in enumerate(_lines(self.path), start=1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
                json.dumps(row, ensure_ascii=False).encode()  # as it will be written
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"Expected whole characters in line {number} of {self.path}, got the half "
                    f"{error.object[error.start]!a}. Write its other half too, or remove it."
                ) from error
            except RecursionError as error:
                raise ValueError(
                    f"Expected an object such as {{...}} in line {number} of {self.path}, got one "
                    "that is nested too deeply. Make it flat."
                ) from error
            except ValueError as error:
                raise ValueError(f"Line {number} of {self.path} is not JSON: {error}.") from error
            if not isinstance(row, dict):
                raise ValueError(
                    f"Expected an object such as {{...}} in line {number} of {self.path}, got "
                    f"{text.strip()[:40]}."
                )
            yield row


class ParquetTable(Table):
    """A parquet file; columns of lists of numbers are embeddings."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with needs("parquet", str(path)):
            import pyarrow.parquet as parquet
        try:
            self.file = parquet.ParquetFile(path, pre_buffer=False)  # it would keep what was read
        except Exception as error:
            raise ValueError(f"{path} is not a readable parquet file: {error}.") from error
        self.columns = list(self.file.schema_arrow.names)

    def count(self) -> int:
        """Count the rows."""
        return int(self.file.metadata.num_rows)

    def lists(self) -> list[str]:
        """Columns of lists of numbers, which can be embeddings."""
        from pyarrow import types

        def has_numbers(kind: Any) -> bool:
            lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
            numbers = (types.is_floating, types.is_integer)
            return any(f(kind) for f in lists) and any(f(kind.value_type) for f in numbers)

        return [field.name for field in self.file.schema_arrow if has_numbers(field.type)]

    def batches(self, size: int, start: int = 0, embedding: str | None = None) -> Iterator[Cells]:
        """Yield `size` rows at a time, from row `start` on; whole groups before it are not read."""
        groups = range(self.file.num_row_groups)
        skip = start
        for group in groups:
            rows = self.file.metadata.row_group(group).num_rows
            if skip < rows:
                groups = range(group, self.file.num_row_groups)
                break
            skip -= rows
        else:
            return
        for piece in _joined(self.file.iter_batches(size, row_groups=list(groups)), size, skip):
            cells: Cells = {}
            for name, column in zip(piece.schema.names, piece.columns, strict=True):
                if name == embedding:
                    cells[name] = _vectors(column)
                else:
                    cells[name] = [_shown(value) for value in column.to_pylist()]
            yield cells


TABLES: dict[str, type[Table]] = {
    ".csv": CsvTable,
    ".tsv": CsvTable,
    ".jsonl": JsonTable,
    ".ndjson": JsonTable,
    ".parquet": ParquetTable,
}
"""Tables by the ending of the file's name."""


def _joined(batches: Iterable[Any], size: int, skip: int) -> Iterator[Any]:
    """Record batches of `size` rows, whatever pieces the file has, after the first `skip` rows."""
    import pyarrow as pa

    held: list[Any] = []
    for batch in batches:
        drop = min(skip, batch.num_rows)
        skip -= drop
        held.append(batch.slice(drop))
        while sum(part.num_rows for part in held) >= size:
            whole = pa.Table.from_batches(held).combine_chunks().to_batches()[0]
            yield whole.slice(0, size)
            held = [whole.slice(size)] if whole.num_rows > size else []
    if any(part.num_rows for part in held):
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _vectors(column: Any) -> Any:
    """Rows of a column of lists as one array; raise ValueError if they differ in length."""
    import pyarrow.compute as compute

    lengths = compute.list_value_length(column).unique().to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        found = ", ".join("nothing" if n is None else str(n) for n in lengths[:5])
        raise ValueError(f"Expected embeddings of one size in every row, got {found} numbers.")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)


class _Watched(Iterator[str]):
    """Lines that remember whether somebody asked for one after the last."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines, self.ended = lines, False

    def __next__(self) -> str:
        for line in self.lines:
            return line
        self.ended = True
        raise StopIteration


def _delimiter(lines: Iterator[str]) -> str:
    """What stands most often between the cells of a header, outside of quotation marks."""
    header = ""
    for line in islice(lines, LONGEST_HEADER):
        header += line
        if header.count('"') % 2 == 0:  # else a cell goes on in the next line
            break
    return max(",;\t", key=re.sub('"[^"]*"', "", header).count)


def _lines(path: Path) -> Iterator[str]:
    """Lines of a file in UTF-8, without the mark that some programs put before the first."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise ValueError(f"Expected UTF-8 in {path}, got UTF-16. Save it as UTF-8.")
            yield _decode(line.removeprefix(BOM_UTF8) if number == 1 else line, number, path)


def _decode(line: bytes, number: int, path: Path) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Expected UTF-8 in {path}, got {error.object[error.start : error.end]!r} in line "
            f"{number}. Save the file as UTF-8."
        ) from None


def _shown(value: Any) -> str:
    """A cell as text; nothing for a missing one."""
    if value is None or value != value:  # NaN differs from itself
        return ""
    if isinstance(value, dict | list | bool):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)
