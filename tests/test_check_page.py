"""The page about `varscale check` says what its rows say."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import check
    import check_table
    from rows import read_rows

    return check, check_table, read_rows(check.FILE, check.Row)


def test_the_tables_are_those_of_the_rows(rows):
    _, tables, found = rows
    page = (ROOT / "docs" / "check.md").read_text().splitlines()
    for line in tables.lines(found):
        assert line in page


def test_no_rows_are_missing(rows):
    check, _, found = rows
    counted = {(r.part, r.dataset, r.task) for r in found}
    assert counted == {
        (part, name, task)
        for part, number in check.TASKS.items()
        for name in check.DATASETS
        for task in range(number)
    }
