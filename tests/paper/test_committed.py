"""What is committed: rows, their arrays, and the page that is made from them."""

from dataclasses import replace
from pathlib import Path

import pytest

from varscale.cli.main import main
from varscale.paper.document import markdown, tables
from varscale.paper.evidence import Everything
from varscale.paper.grid import cells, entries
from varscale.paper.importer import stand_in
from varscale.paper.reproduce import Job, missing
from varscale.paper.results import Results
from varscale.paper.sizes import SIZES

ROOT = Path(__file__).parents[2]
RESULTS = Results(ROOT / "results")


def test_table_2_is_whole_and_nothing_is_run(home, capsys):
    jobs = [Job(name, "small", seed) for name in cells(entries("table2")) for seed in range(3)]
    assert missing(jobs, RESULTS) == []
    assert main(["reproduce", "table2", "--results", str(RESULTS.folder)]) == 0
    assert main(["reproduce", "table4", "--show", "--results", str(RESULTS.folder)]) == 0
    assert capsys.readouterr().out.count("± ") >= 32  # reported and ours


def test_the_page_is_that_of_the_rows():
    assert (ROOT / "docs" / "reproduce.md").read_text() == markdown(RESULTS.folder)


def test_rows_are_of_the_configs_that_the_grid_has():
    """But for those of D-AVS that results/README.md names: they are to be run again."""
    stale = {
        "davs_cosine_5w1s", "davs_cosine_5w5s", "davs_euclidean_5w1s", "davs_euclidean_5w5s",
        "davs_noaux_cosine_5w1s", "davs_support_cosine_5w1s",
    }  # fmt: skip
    configs = {}
    for row in (row for size in SIZES for row in RESULTS.rows(size)):
        if row.cell not in stale or row.commit:
            job = Job(row.cell, row.size, 0, row.dataset, row.precision)
            if job not in configs:
                configs[job] = job.resolve(stand_in(row.dataset, row.item))
            assert row.config_hash == replace(configs[job], seed=row.seed).hash, row.key


def test_rows_at_the_papers_size_are_shown_however_few():
    shown = {
        row.key for lines, _ in tables(RESULTS).values() for line in lines for row in line.rows
    }
    at_size = RESULTS.rows("paper")
    assert at_size
    assert {row.key for row in at_size} <= shown


def test_every_row_has_its_arrays():
    for size in SIZES:
        for row in RESULTS.rows(size):
            arrays = RESULTS.arrays(row)
            tasks = row.n_way * row.n_query * row.episodes
            assert arrays["hits"].sum() / tasks == pytest.approx(row.accuracy, abs=1e-6)


@pytest.mark.parametrize("shot", [1, 5])
def test_svs_beats_the_unscaled_cosine(shot):
    small = Everything.read(RESULTS.folder).small
    gain = small.gain(f"svs_learned_cosine_5w{shot}s", f"pn_cosine_5w{shot}s")
    assert gain.runs == 3
    assert gain.mean - gain.half > 0
