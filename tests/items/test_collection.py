"""Items in memory: what they are, and how they are embedded."""

import numpy as np
import pytest
from own_items import LETTERS, WORDS, write_csv

from varscale.items import make_embedder, read
from varscale.items.cache import Cache, content_key


def test_a_table_finds_its_columns(tickets, letters, tmp_path):
    items = read(tickets, text="question", label="intent")
    texts = [text for texts in WORDS.values() for text in texts]
    assert items.contents == texts
    assert items.shown == texts
    assert items.labels.tolist() == [name for name, some in WORDS.items() for _ in some]
    assert read(tickets).labels.tolist() == items.labels.tolist()  # both are found by themselves
    x, rows = items.embed(letters)
    assert rows.tolist() == list(range(12))
    assert x[0, 0] == pytest.approx(1.01)  # of "apple pie"
    write_csv(tmp_path / "more.csv", ["id", "body", "title"], [(1, "x", "y")])
    with pytest.raises(ValueError, match="'id', 'body', 'title' .* name it by --text COLUMN"):
        read(tmp_path / "more.csv")
    with pytest.raises(ValueError, match=r"'boddy'; known: .*Did you mean 'body'"):
        read(tmp_path / "more.csv", text="boddy")
    with pytest.raises(ValueError, match="got several"):
        read(tmp_path / "more.csv", text="body", image="title")
    write_csv(tmp_path / "none.csv", ["text"], [])
    with pytest.raises(ValueError, match="a header and no rows"):
        read(tmp_path / "none.csv")


def test_pictures_in_folders_and_in_a_table_are_the_same(pictures, letters, tmp_path):
    items = read(pictures)
    assert items.kind == "image"
    assert items.labels.tolist() == ["blue"] * 4 + ["green"] * 4 + ["red"] * 4
    assert items.shown[0] == "blue/0.png"
    rows = [(f"pictures/{path}", path.split("/")[0]) for path in items.shown]
    write_csv(tmp_path / "table.csv", ["file", "label"], rows)
    table = read(tmp_path / "table.csv", image="file")
    assert table.keys() == items.keys()
    np.testing.assert_array_equal(table.embed(letters)[0], items.embed(letters)[0])


def test_unreadable_pictures_are_listed_or_left_out(pictures, letters, tmp_path):
    (pictures / "red" / "1.png").write_bytes(b"no picture")
    items = read(pictures)
    with pytest.raises(ValueError, match=r"1 of 12 items cannot be read: red/1.png in .*skip_bad"):
        items.embed(letters)
    x, rows = items.embed(letters, skip_bad=True)
    assert rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert len(x) == 11
    write_csv(tmp_path / "t.csv", ["file"], [("gone.png",)])
    with pytest.raises(ValueError, match="No such file"):
        read(tmp_path / "t.csv", image="file").embed(letters)
    with pytest.raises(ValueError, match="that can be read, got none"):
        read(tmp_path / "t.csv", image="file").embed(letters, skip_bad=True)


def test_nothing_is_embedded_twice(tickets, letters, monkeypatch):
    embedder, items = make_embedder(letters), read(tickets)
    first, _ = items.embed(embedder)
    monkeypatch.setattr(embedder, "embed", None)  # would raise
    again, _ = items.embed(embedder)
    np.testing.assert_array_equal(again, first)


def test_embedders_that_fail_are_named(tickets, tmp_path, letters):
    base = letters.removesuffix("embed")
    for name, message in (
        ("broken", "got NaN or infinity for row 1 of .*tickets.csv"),
        ("narrow", r"one row of numbers for each of 12 items .* got float64 of shape \(13, 3\)"),
        ("angry", "failed: RuntimeError: no model here"),
        ("missing", "Expected a function missing"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tickets).embed(base + name)
    for word, message in (
        ("pyton:x:y", "Unknown embedder 'pyton'.*Did you mean 'python'"),
        ("python", "Expected the embedder python:MODULE:FUNCTION, got 'python'"),
        ("minilm:x", "Expected the embedder minilm, got 'minilm:x'"),
        ("sentence-transformers:nowhere", "allow its download: --download"),
        ("onnx:nowhere.onnx", "Expected an ONNX file"),
    ):
        with pytest.raises(ValueError, match=message):
            make_embedder(word)


def test_the_code_of_a_function_is_part_of_its_identity(letters, tmp_path):
    before = make_embedder(letters).identity
    (tmp_path / "other.py").write_text(LETTERS + "\n# changed\n")
    assert make_embedder(f"python:{tmp_path / 'other.py'}:embed").identity != before


def test_one_item_with_two_labels(tmp_path):
    rows = [("hello", "a"), ("hello", "b"), ("bye", "a"), ("bye", "a"), ("hello", "")]
    write_csv(tmp_path / "t.csv", ["text", "label"], rows)
    assert read(tmp_path / "t.csv").conflicts() == ["'hello' is a and b"]


def test_a_damaged_cache_is_made_again(tmp_path):
    key, vector = content_key("text"), np.arange(3, dtype=np.float32)
    Cache("x" * 64, tmp_path).put({key: vector})
    np.testing.assert_array_equal(Cache("x" * 64, tmp_path).get([key, b"other"])[key], vector)
    next(tmp_path.glob("*.sqlite")).write_bytes(b"damaged" * 1000)
    assert Cache("x" * 64, tmp_path).get([key]) == {}


def test_keys_tell_kinds_apart():
    assert content_key("a") != content_key(b"a")
    assert content_key(np.array([1.0, 2.0])) == content_key(np.array([1, 2], dtype=np.float32))


def test_a_run_with_imports_executes_code(tmp_path):
    from varscale.items.embedders.base import executes_code

    for imports, expected in (("[]", False), ("[mine.py]", True)):
        (tmp_path / "config.yaml").write_text(f"dataset: x\nimports: {imports}\n")
        assert executes_code(f"run:{tmp_path}") is expected
    assert executes_code("python:os:system")
    assert not executes_code("minilm")
