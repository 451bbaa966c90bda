"""What is committed: rows, and the pages and headers that are made from them."""

from pathlib import Path

import pytest

from varscale.cli.main import main
from varscale.paper.cells import configs, entries
from varscale.paper.claims import Everything
from varscale.paper.document import markdown
from varscale.paper.headers import with_ours
from varscale.paper.reproduce import Job, missing
from varscale.paper.results import Results

ROOT = Path(__file__).parents[2]
RESULTS = Results(ROOT / "results")


def test_table_2_is_whole_and_nothing_is_run(home, capsys):
    jobs = [Job(name, "small", seed) for name in configs(entries("table2")) for seed in range(3)]
    assert missing(jobs, RESULTS) == []
    assert main(["reproduce", "table2", "--results", str(RESULTS.folder)]) == 0
    assert main(["reproduce", "table4", "--show", "--results", str(RESULTS.folder)]) == 0
    assert capsys.readouterr().out.count("± ") >= 32  # reported and ours


def test_the_page_is_that_of_the_rows():
    assert (ROOT / "docs" / "reproduce.md").read_text() == markdown(RESULTS.folder)


def test_the_headers_are_those_of_the_rows():
    rows = [row for scale in ("small", "frozen") for row in RESULTS.rows(scale)]
    for name in {row.config for row in rows}:
        text = (ROOT / "configs" / f"{name}.yaml").read_text()
        assert with_ours(text, [row for row in rows if row.config == name]) == text


def test_every_row_has_its_arrays():
    for scale in ("small", "frozen"):
        for row in RESULTS.rows(scale):
            arrays = RESULTS.arrays(row)
            tasks = row.n_way * row.n_query * row.episodes
            assert arrays["hits"].sum() / tasks == pytest.approx(row.accuracy, abs=1e-6)


@pytest.mark.parametrize("shot", [1, 5])
def test_svs_beats_the_unscaled_cosine(shot):
    small = Everything.read(RESULTS.folder).small
    gain = small.gain(f"svs_learned_cosine_5w{shot}s", f"pn_cosine_5w{shot}s")
    assert gain.runs == 3
    assert gain.mean - gain.half > 0
