"""Rows and their arrays are stored whole, and two may add at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from paper.test_claims import arrays, row

from varscale.core.files import write_whole
from varscale.paper.results import Results


def same(a, b):
    return list(a) == list(b) and all(
        a[name].dtype == b[name].dtype and a[name].tobytes() == b[name].tobytes() for name in a
    )


def test_what_is_stored_is_read_again_bit_for_bit(tmp_path):
    results, stored = Results(tmp_path), {}
    for cell in ("svs_cosine_5w1s", "pn_cosine_5w1s"):
        for precision in ("32-true", "bf16-mixed"):
            one = row(cell, precision=precision, val_accuracy=1 / 3)
            stored[one.key] = one, arrays(0.5, end=len(stored))
            results.add(*stored[one.key])
    results.add(row("svs_cosine_5w1s", size="frozen"), arrays(0.4))
    assert [r.key for r in results.rows("small")] == sorted(stored)
    for found in results.rows("small"):
        assert found == stored[found.key][0]
        assert same(results.arrays(found), stored[found.key][1])
    assert sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".") == [
        "frozen.csv", "frozen.zip", "small.csv", "small.zip",
    ]  # fmt: skip


def test_a_row_takes_the_place_of_the_one_before(tmp_path):
    results, first = Results(tmp_path), row("svs_cosine_5w1s")
    results.add(first, arrays(0.5))
    results.add(replace(first, accuracy=0.6), arrays(0.6))
    assert [r.accuracy for r in results.rows("small")] == [0.6]
    assert same(results.arrays(first), arrays(0.6))
    assert results.stored("small") == {first.file}


def test_the_order_of_adding_does_not_show(tmp_path):
    rows = [(row("svs_cosine_5w1s", seed=n), arrays(0.5, end=n)) for n in range(3)]
    Results(tmp_path / "all").add_all(rows)
    for one in reversed(rows):
        Results(tmp_path / "one").add(*one)
    for name in ("small.csv", "small.zip"):
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_two_may_add_at_once(tmp_path, monkeypatch):
    def write_slowly(path, content):
        time.sleep(0.01)  # time enough for the other to come between
        write_whole(path, content)

    monkeypatch.setattr("varscale.paper.results.write_whole", write_slowly)

    def add(first):
        for seed in range(first, first + 4):
            one = row("svs_cosine_5w1s", seed=seed), arrays(0.5, end=seed)
            Results(tmp_path).add(*one)  # a lock of its own, as in another process

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, (0, 4)))
    results = Results(tmp_path)
    assert [r.seed for r in results.rows("small")] == list(range(8))
    for one in results.rows("small"):
        assert results.arrays(one)["loc"][0] == one.seed


def test_what_cannot_be_read_is_named(tmp_path):
    results, one = Results(tmp_path), row("svs_cosine_5w1s")
    results.add(one, arrays(0.5))
    with pytest.raises(ValueError, match="svs_cosine_5w1s-miniimagenet32-1.npz in .* is missing"):
        results.arrays(replace(one, seed=1))
    packed = (tmp_path / "small.zip").read_bytes()
    (tmp_path / "small.zip").write_bytes(packed[:100] + b"no" + packed[102:])
    with pytest.raises(ValueError, match="is missing or damaged"):
        results.arrays(one)
    with pytest.raises(ValueError, match="small.zip is damaged"):
        results.add(replace(one, seed=1), arrays(0.5))
    (tmp_path / "small.zip").write_bytes(packed[:1000])
    with pytest.raises(ValueError, match="small.zip is damaged"):
        results.add(one, arrays(0.5))
    assert results.rows("small") == [one]
    head = (tmp_path / "small.csv").read_text().partition("\n")[0]
    (tmp_path / "small.csv").write_text(f"{head}\nsvs,small\n")
    with pytest.raises(ValueError, match="has a row that cannot be read"):
        results.rows("small")
    (tmp_path / "small.csv").write_text(head.replace("size", "scale") + "\n")
    with pytest.raises(ValueError, match="older layout.*--take"):
        results.rows("small")


def test_arrays_are_no_code(tmp_path):
    one = row("svs_cosine_5w1s")
    Results(tmp_path).add(one, {"hits": np.array([print], dtype=object)})
    with pytest.raises(ValueError, match="is missing or damaged"):
        Results(tmp_path).arrays(one)
