"""Tables of a user, as they come."""

import json
from datetime import date, datetime
from decimal import Decimal

import pytest

from varscale.items.tables import LARGEST_CELL, TABLES

ROWS = [("a, b", "x"), ('say "hi"', ""), ("two\nlines", "y"), ("é", "x"), ("last", "y")]


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def as_csv(path, delimiter=","):
    lines = [["text", "label"], *ROWS]
    quoted = [delimiter.join('"' + c.replace('"', '""') + '"' for c in line) for line in lines]
    return write(path, "\r\n".join(quoted))


def as_jsonl(path):
    return write(path, "\n".join(json.dumps({"text": t, "label": c}) for t, c in ROWS) + "\n\n")


def as_parquet(path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    import pyarrow.parquet as parquet

    text, label = (list(c) for c in zip(*ROWS, strict=True))
    parquet.write_table(pa.table({"text": text, "label": label}), path, row_group_size=2)
    return path


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("t.csv", as_csv),
        ("t.tsv", lambda path: as_csv(path, "\t")),
        ("semicolons.csv", lambda path: as_csv(path, ";")),
        ("bom.csv", lambda path: write(path, "\ufeff" + as_csv(path).read_bytes().decode())),
        ("t.jsonl", as_jsonl),
        ("t.parquet", as_parquet),
    ],
)
def test_every_row_in_order_from_any_start(tmp_path, name, make):
    table = TABLES[(tmp_path / name).suffix](make(tmp_path / name))
    assert table.columns == ["text", "label"]
    assert table.count() == 5
    for size in (1, 2, 3, 10):
        for start in range(6):
            found = [
                pair
                for cells in table.batches(size, start)
                for pair in zip(cells["text"], cells["label"], strict=True)
            ]
            assert found == ROWS[start:]
            sizes = [len(cells["text"]) for cells in table.batches(size, start)]
            assert all(n == size for n in sizes[:-1])


def test_json_lines_may_lack_keys(tmp_path):
    path = write(tmp_path / "t.jsonl", '{"a": 1}\n{"b": [2, null], "a": null}\n')
    (cells,) = TABLES[".jsonl"](path).batches(10)
    assert cells == {"a": ["1", ""], "b": ["", "[2, null]"]}


def test_embeddings_of_a_parquet_file(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    import numpy as np
    import pyarrow.parquet as parquet

    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    for kind in (pa.list_(pa.float32()), pa.list_(pa.float32(), 3), pa.large_list(pa.float32())):
        column = pa.array(x.tolist(), type=kind)
        parquet.write_table(pa.table({"e": column}), tmp_path / "e.parquet", row_group_size=2)
        table = TABLES[".parquet"](tmp_path / "e.parquet")
        assert table.lists() == ["e"]
        found = np.concatenate([cells["e"] for cells in table.batches(2, 1, "e")])
        np.testing.assert_array_equal(found, x[1:])
    for rows, found in (([[1.0, 2.0], [3.0]], "2, 1"), ([[], []], "0")):
        uneven = pa.table({"e": pa.array(rows, type=pa.list_(pa.float32()))})
        parquet.write_table(uneven, tmp_path / "e.parquet")
        with pytest.raises(ValueError, match=f"of one size in every row, got {found} numbers"):
            list(TABLES[".parquet"](tmp_path / "e.parquet").batches(2, 0, "e"))


def test_other_lists_of_a_parquet_file_are_texts(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    import pyarrow.parquet as parquet

    columns = {"q": ["x", "y"], "tags": [["a"], ["b", "é"]], "v": [[1.5], [2, 3]], "w": [[1], [2]]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = TABLES[".parquet"](tmp_path / "t.parquet")
    assert table.lists() == ["v", "w"]
    (cells,) = table.batches(10)
    shown = {"tags": ['["a"]', '["b", "é"]'], "v": ["[1.5]", "[2.0, 3.0]"], "w": ["[1]", "[2]"]}
    assert cells == {"q": ["x", "y"], **shown}
    (cells,) = table.batches(10, 0, "w")
    assert cells.pop("w").tolist() == [[1], [2]]
    assert cells["v"] == shown["v"]


def test_dates_and_numbers_of_a_parquet_file_have_no_quotation_marks(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    import pyarrow.parquet as parquet

    cases = [
        (date(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2, 3), "2020-01-02 03:00:00"),
        (Decimal("1.50"), "1.50"),
        (b"ab", "b'ab'"),
        (float("nan"), ""),
        (None, ""),
        (1.5, "1.5"),
        ({"k": date(2020, 1, 2)}, '{"k": "2020-01-02"}'),
    ]
    columns = {str(i): [value] for i, (value, _) in enumerate(cases)}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    (cells,) = TABLES[".parquet"](tmp_path / "t.parquet").batches(10)
    assert [cell for (cell,) in cells.values()] == [shown for _, shown in cases]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.csv", '"my\nquestion",label\nx,y\n', {"my\nquestion": ["x"], "label": ["y"]}),
        ("t.csv", '"a, b,\nc";label\nx;y\n', {"a, b,\nc": ["x"], "label": ["y"]}),
        ("t.tsv", "a, b, c\tlabel\nx\ty\n", {"a, b, c": ["x"], "label": ["y"]}),
        ("t.csv", 'a,b\n"x"y,"z"\n', {"a": ["xy"], "b": ["z"]}),
        ("t.csv", 'a,b\n1,"two\nlines"', {"a": ["1"], "b": ["two\nlines"]}),
        ("t.csv", "\ufeffa,b\n\ufeffx,y\n", {"a": ["\ufeffx"], "b": ["y"]}),
        ("t.jsonl", '\ufeff{"a": "x"}\n', {"a": ["x"]}),
        ("t.jsonl", '{"a": NaN, "b": "\\ud83d\\ude00"}\n', {"a": [""], "b": ["😀"]}),
    ],
)
def test_odd_files_are_read_as_they_are_meant(tmp_path, name, content, expected):
    table = TABLES[(tmp_path / name).suffix](write(tmp_path / name, content))
    assert table.count() == 1
    assert list(table.batches(10)) == [expected]
    assert table.columns == list(expected)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "Expected a header"),
        ("t.csv", b"a,a\n1,2\n", "'a' twice"),
        (
            "t.csv",
            b"a,b\n1,2\n1,2,3\n",
            "Expected 2 cells in line 3 of .*, as .*, got 3",
        ),
        ("t.csv", b"a,b\n1,2\n\xe4,3\n", r"Expected UTF-8 in .*, got b'\\xe4' in line 3"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), "got UTF-16. Save it as UTF-8"),
        ("t.csv", b'a,b\n1,"' + b"x" * (LARGEST_CELL + 1), "Line 2 .* more than 1,000,000 char"),
        ("t.csv", b'a,b\n1,2\n1,"x\n3,4\n', "cell that begins in line 3 of .*, got the end of the"),
        ("t.csv", b'a,b\n"1\n1","x\r\n3,4\r\n5,6', "cell that begins in line 3 of .*, got the end"),
        ("t.csv", b'a,"b\n1,2\n', "cell that begins in line 1 of"),
        ("t.csv", b"a,b\r1,2\r", "Expected lines that end in a line feed .* in line 1. Save it"),
        ("t.csv", b"a,b\n1,2\r3,4\n", "Expected lines that end in a line feed .* in line 2. Save"),
        ("t.jsonl", b'{"a": ' + b"[" * 10**5 + b"\n", "in line 1 of .*, got one .* too deeply"),
        ("t.jsonl", b'{}\n{"a": ["\\ud83d"]}\n', r"in line 2 of .*, got the half '\\ud83d'"),
        ("t.jsonl", b'{"\\ude00": 1}\n', r"in line 1 of .*, got the half '\\ude00'"),
        ("t.jsonl", b'{"a": 1}\n{"a"\n', "Line 2 of .* is not JSON"),
        ("t.jsonl", b"[1]\n", r"Expected an object such as {...} in line 1 of .*, got \[1\]"),
        ("t.jsonl", b'{"a": "\xff"}\n', "Expected UTF-8"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        TABLES[(tmp_path / name).suffix](tmp_path / name).count()


def test_a_parquet_file_that_is_none(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    (tmp_path / "t.parquet").write_bytes(b"not at all")
    with pytest.raises(ValueError, match="not a readable parquet file"):
        TABLES[".parquet"](tmp_path / "t.parquet")
