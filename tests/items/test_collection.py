"""Items in memory: what they are, and how they are embedded."""

import io
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from own_items import LETTERS, WORDS, write_csv
from PIL import Image

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
    with pytest.raises(ValueError, match="'id', 'body', 'title'. Name it: --text COLUMN"):
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


def test_empty_texts_are_listed_or_left_out(letters, tmp_path):
    write_csv(
        tmp_path / "t.csv", ["text", "label"], [("red", "a"), (" ", "b"), ("", ""), ("x", "b")]
    )
    items = read(tmp_path / "t.csv")
    message = (
        r"2 of 4 items cannot be read: row 2 of .*t.csv: its text is empty; row 3 of .*skip_bad"
    )
    with pytest.raises(ValueError, match=message):
        items.embed(letters)
    assert items.embed(letters, skip_bad=True)[1].tolist() == [0, 3]


def test_pictures_of_a_table_are_files_of_a_sound_size(pictures, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.png")
    monkeypatch.setattr("varscale.items.source.MAX_PICTURE", 1000)
    (tmp_path / "large.png").write_bytes(bytes(1001))
    paths = ["pictures/red/0.png", "", " ", "pictures", "/dev/zero", "pipe.png", "large.png"]
    write_csv(tmp_path / "t.csv", ["file", "label"], [(path, "x") for path in paths])
    (batch,) = read(tmp_path / "t.csv", image="file").batches
    assert batch.contents[0] == (pictures / "red" / "0.png").read_bytes()
    assert list(batch.bad.values()) == [
        "its cell is empty",
        "its cell is empty",
        "pictures is not a file",
        "/dev/zero is not a file",
        "pipe.png is not a file",
        "expected at most 1,000 bytes in a picture, got 1,001 in large.png",
    ]


def test_white_space_around_labels_does_not_count(tmp_path):
    rows = [("a", "fruit "), ("b", "fruit"), ("c", " "), ("d", "\tred fruit")]
    write_csv(tmp_path / "t.csv", ["text", "label"], rows)
    assert read(tmp_path / "t.csv").labels.tolist() == ["fruit", "fruit", "", "red fruit"]


def test_only_lists_of_numbers_are_embeddings(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    import pyarrow.parquet as parquet

    table = {"question": ["x", "y"], "tags": [["a"], ["b", "c"]], "v": [[1.0, 2.0], [3.0, 4.0]]}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    items = read(tmp_path / "t.parquet", text="question")
    assert items.contents == ["x", "y"]
    assert items.batches[0].cells["v"] == ["[1.0, 2.0]", "[3.0, 4.0]"]
    found = read(tmp_path / "t.parquet")
    assert found.kind == "embedding"
    np.testing.assert_array_equal(found.contents, table["v"])
    write_csv(tmp_path / "t.csv", ["v"], [("[1, 2]",)])
    for name, column in (("t.parquet", "tags"), ("t.csv", "v")):
        with pytest.raises(ValueError, match=f"Expected lists of numbers, .* column '{column}'"):
            read(tmp_path / name, embedding=column)


def test_endings_in_capitals(tmp_path):
    with (tmp_path / "U.NPY").open("wb") as file:
        np.save(file, np.eye(3))
    np.testing.assert_array_equal(read(tmp_path / "U.NPY").contents, np.eye(3))


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
        ("missing", "Expected a function missing in .*, which has .*narrow"),
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


def test_weights_elsewhere_count_by_the_identity_of_the_module(tmp_path):
    source = "from pathlib import Path\nIDENTITY = Path(__file__).with_name('w').read_text()\n"
    made = []
    for name, weights in (("a", "1"), ("b", "2"), ("c", "1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "w").write_text(weights)
        (tmp_path / name / "own.py").write_text(source + LETTERS)
        made.append(make_embedder(f"python:{tmp_path / name / 'own.py'}:embed").identity)
    assert made[0] == made[2] != made[1]


def test_functions_get_pictures_of_known_formats_and_sizes(letters, monkeypatch):
    embedder, image = make_embedder(letters), Image.new("RGB", (20, 10))
    for kind, message in (("ICO", "x cannot be read: it is not one of JPEG, PNG"), ("PNG", None)):
        image.save(file := io.BytesIO(), kind)
        if message is None:
            assert embedder.prepare(file.getvalue(), "x").size == (20, 10)
            monkeypatch.setattr("varscale.items.embedders.python.MAX_PIXELS", 199, raising=False)
            message = "x cannot be read: 20 x 10 pixels, over 199"
        with pytest.raises(ValueError, match=message):
            embedder.prepare(file.getvalue(), "x")


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


def test_a_cache_that_is_damaged_later_is_made_again(tmp_path):
    vectors = {content_key(str(i)): np.full(400, i, dtype=np.float32) for i in range(500)}
    keys = list(vectors)
    for act in (lambda cache: cache.get(keys), lambda cache: cache.put(vectors)):
        Cache("x", tmp_path).put(vectors)
        cache = Cache("x", tmp_path)
        content = cache.path.read_bytes()
        cache.path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
        assert not act(cache)
        cache.put(vectors)
        assert len(cache.get(keys)) == len(Cache("x", tmp_path).get(keys)) == 500


def test_a_cache_that_others_lock_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("varscale.items.cache.WAIT", 0.01, raising=False)
    key, vector = content_key("text"), np.arange(3, dtype=np.float32)
    cache = Cache("x", tmp_path)
    cache.put({key: vector})
    with closing(sqlite3.connect(cache.path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        with pytest.warns(UserWarning, match="Embeddings are not kept: database is locked"):
            assert Cache("x", tmp_path).get([key]) == {}
        with pytest.raises(OSError, match="database is locked"):
            cache.put({key: vector})
    np.testing.assert_array_equal(Cache("x", tmp_path).get([key])[key], vector)


def test_threads_share_a_cache(tmp_path):
    cache = Cache("x", tmp_path)

    def use(i):
        key = content_key(str(i))
        cache.put({key: np.full(3, i)})
        return cache.get([key])[key].tolist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(use, range(100))) == [[i] * 3 for i in range(100)]


def test_without_a_folder_to_write_to_nothing_is_kept(tickets, letters, tmp_path, monkeypatch):
    expected, _ = read(tickets).embed(letters)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VARSCALE_HOME", str(tmp_path / "file" / "below"))
    with pytest.warns(UserWarning, match="Embeddings are not kept: Not a directory") as warned:
        found, _ = read(tickets).embed(letters)
    assert len(warned) == 1
    np.testing.assert_array_equal(found, expected)


def test_keys_tell_kinds_apart():
    assert content_key("a") != content_key(b"a")
    assert content_key(np.array([1.0, 2.0])) == content_key(np.array([1, 2], dtype=np.float32))


def test_a_run_with_imports_executes_code(tmp_path):
    from varscale.items.embedders.base import executes_code

    for imports, expected in (("[]", False), ("[mine.py]", True)):
        (tmp_path / "config.yaml").write_text(f"dataset: x\nimports: {imports}\n")
        assert executes_code(f"run:{tmp_path}") is expected
    assert executes_code("python:os:system")


def test_a_folder_of_sentence_transformers_may_execute_code(tmp_path, monkeypatch):
    from varscale.items.embedders.base import executes_code

    spec, modules = f"sentence-transformers:{tmp_path}", tmp_path / "modules.json"
    assert not executes_code(spec)
    for content, expected in (
        ('[{"type": "sentence_transformers.models.Pooling"}]', False),
        ('[{"type": "sentence_transformers.models.Pooling"}, {"type": "own.Layer"}]', True),
        ('[{"type": "sentence_transformers_own.Layer"}]', True),
        ("[{}]", True),
        ("no JSON", True),
    ):
        modules.write_text(content)
        assert executes_code(spec) is expected
    modules.unlink()
    (tmp_path / "0_Own").mkdir()
    (tmp_path / "0_Own" / "own.py").write_text("")
    assert executes_code(spec)
    monkeypatch.chdir(tmp_path)
    assert not executes_code("minilm")  # wherever it is called
