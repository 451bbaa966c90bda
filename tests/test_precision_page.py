"""The page about bfloat16 says what its rows say."""

from pathlib import Path


def test_the_page_is_that_of_its_rows(monkeypatch):
    root = Path(__file__).parent.parent
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import precision

    assert (root / "docs" / "precision.md").read_text() == precision.page(precision.rows())
