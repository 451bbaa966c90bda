"""Tables of a user: CSV, JSON lines and parquet files, some rows at a time."""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

Cells = dict[str, list[Any]]
"""Cells of some rows, by column."""

LARGEST_CELL = 1_000_000
"""Characters of a cell, at most: a longer one is a file that lost a quotation mark."""


class Table(ABC):
    """Rows of a file. A member knows its columns, and yields rows in the order of the file."""

    columns: list[str]

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def batches(self, size: int, start: int = 0) -> Iterator[Cells]:
        """Yield `size` rows at a time, from row `start` on."""

    @abstractmethod
    def count(self) -> int:
        """Count the rows; raise ValueError for one that cannot be read, before work begins."""

    def where(self, row: int) -> str:
        """Say in a message where a row stands."""
        return f"row {row + 1} of {self.path}"


class CsvTable(Table):
    """A CSV file in UTF-8 with a header; cells end at commas, semicolons or tabs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        first = next(self._lines(), "")
        if not first.strip():
            raise ValueError(f"Expected a header with the names of columns in {path}, got none.")
        self.delimiter = max(",;\t", key=first.count)
        self.columns = next(csv.reader([first], delimiter=self.delimiter))
        if twice := {name for name in self.columns if self.columns.count(name) > 1}:
            raise ValueError(
                f"Expected columns with different names in {path}, got {sorted(twice)[0]!r} twice."
            )

    def batches(self, size: int, start: int = 0) -> Iterator[Cells]:
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
        csv.field_size_limit(LARGEST_CELL)
        reader = csv.reader(self._lines(), delimiter=self.delimiter)
        next(reader)
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                if "field larger" in str(error):
                    error = csv.Error(f"a cell of more than {LARGEST_CELL:,} characters")
                raise ValueError(
                    f"Line {reader.line_num} of {self.path} cannot be read: {error}. Is a "
                    "quotation mark missing before it?"
                ) from error
            if row is None:
                return
            if row and len(row) != len(self.columns):
                raise ValueError(
                    f"Expected {len(self.columns)} cells in line {reader.line_num} of {self.path}, "
                    f"as its header has, got {len(row)}. Put cells with {self.delimiter!r} into "
                    "quotation marks."
                )
            if row:
                yield row

    def _lines(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise ValueError(
                        f"Expected UTF-8 in {self.path}, got UTF-16. Save it as UTF-8."
                    )
                yield _decode(line.removeprefix(b"\xef\xbb\xbf"), number, self.path)


class JsonTable(Table):
    """A file with one JSON object per line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.columns, self._count = [], 0
        for row in self._rows():
            self.columns += [key for key in row if key not in self.columns]
            self._count += 1

    def batches(self, size: int, start: int = 0) -> Iterator[Cells]:
        """Yield `size` rows at a time, from row `start` on."""
        rows = islice(self._rows(), start, None)
        while some := list(islice(rows, size)):
            yield {name: [_shown(row.get(name)) for row in some] for name in self.columns}

    def count(self) -> int:
        """Count the rows."""
        return self._count

    def _rows(self) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = _decode(line, number, self.path)
                if not text.strip():
                    continue
                try:
                    row = json.loads(text)
                except ValueError as error:
                    raise ValueError(
                        f"Line {number} of {self.path} is not JSON: {error}."
                    ) from error
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
        try:
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise ValueError(f"{path} needs pyarrow: pip install 'varscale[parquet]'.") from error
        try:
            self.file = parquet.ParquetFile(path, pre_buffer=False)  # it would keep what was read
        except Exception as error:
            raise ValueError(f"{path} is not a readable parquet file: {error}.") from error
        self.columns = list(self.file.schema_arrow.names)

    def count(self) -> int:
        """Count the rows."""
        return int(self.file.metadata.num_rows)

    def lists(self) -> list[str]:
        """Columns of lists."""
        import pyarrow as pa

        kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        return [f.name for f in self.file.schema_arrow if any(kind(f.type) for kind in kinds)]

    def batches(self, size: int, start: int = 0) -> Iterator[Cells]:
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
        lists = self.lists()
        for piece in _joined(self.file.iter_batches(size, row_groups=list(groups)), size, skip):
            cells: Cells = {}
            for name, column in zip(piece.schema.names, piece.columns, strict=True):
                cells[name] = (
                    _vectors(column) if name in lists else [_shown(v) for v in column.to_pylist()]
                )
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
    if len(lengths) != 1 or None in lengths:
        found = ", ".join("nothing" if n is None else str(n) for n in lengths[:5])
        raise ValueError(f"Expected embeddings of one size in every row, got {found} numbers.")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)


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
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
