"""The page about a scale without settings says what its rows say."""

from pathlib import Path


def test_the_page_is_that_of_its_rows(monkeypatch):
    root = Path(__file__).parent.parent
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import no_settings_page

    page = no_settings_page.page(*no_settings_page.read())
    assert (root / "docs" / "no-settings.md").read_text() == page
