"""The page that compares ways to classify embeddings says what its rows say."""

from pathlib import Path

import pytest


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import page

    return page


def test_the_page_is_that_of_its_rows(page):
    assert page.PAGE.read_text() == page.page(*page.read())


def test_no_rows_are_missing(page):
    rows, drawn, more, pictured, mixed = page.read()
    least = {method: shots for method, (_, shots, _) in page.RIVALS.items()}
    sentences = page.embeddings.make_plan(list(page.DATASETS), list(page.embeddings.TASKS))
    for there, plan in (
        (rows, sentences),
        (pictured, page.images.make_image_plan(list(page.BACKBONES))),
    ):
        assert {(r.dataset, r.base, r.kind, r.method, r.way, r.shot) for r in there} == {
            (*line, way, shot)
            for line in plan
            for way, shot in page.CELLS
            if shot >= least.get(line[3], 1)
        }
    for name in (*page.DATASETS, *page.BACKBONES):
        assert list(page.ours_of(rows + pictured, name)) == page.CELLS
    sets = page.sets
    settings = len(sets.DATASETS) * len(sets.SHOTS) * len(sets.ERRORS) * len(page.METHODS)
    assert len(drawn) == sets.SEEDS * settings
    assert len(more) == 2 * 2 * 4 * 4  # datasets, kinds of queries, evidence, shots
    assert len(mixed) == len(page.DATASETS) * len(page.unequal.METHODS) * len(page.unequal.MANY)
