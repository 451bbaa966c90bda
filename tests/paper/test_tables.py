"""Published figures and ours, side by side."""

from dataclasses import replace

import pytest
from paper.test_claims import row

from varscale.evaluation.metrics import t_interval
from varscale.paper.grid import entries
from varscale.paper.tables import Gain, gains, table


def test_tables_set_ours_beside_reported():
    rows = [row("pn_cosine_5w1s", seed=seed, accuracy=0.3 + seed / 50) for seed in (0, 1)]
    lines = {(line.entry.row, line.entry.column): line for line in table(entries("table2"), rows)}
    line = lines["PN", "1-shot cosine"]
    assert line.ours == pytest.approx(31.0)
    assert line.difference == pytest.approx(31.0 - 42.20)
    assert line.half == pytest.approx(100 * t_interval([0.3, 0.32])[1])
    assert lines["PN + SVS", "1-shot cosine"].ours is None
    for other in ({"dataset": "letters"}, {"size": "frozen"}):  # nothing to subtract from
        unlike = [replace(row, **other) for row in rows]
        assert {line.difference for line in table(entries("table2"), unlike)} == {None}


def test_gains_are_over_the_first_row_and_paired_by_seed():
    rows = [row("pn_cosine_5w1s", seed=seed, accuracy=0.3 + seed / 50) for seed in (0, 1)]
    better = [replace(r, cell="svs_learned_cosine_5w1s", accuracy=r.accuracy + 0.01) for r in rows]
    column = table(entries("table2", column="1-shot cosine"), [*rows, *better])
    first, second, *_ = gains(column)
    assert first == Gain(None, None, None)
    assert (second.reported, second.ours) == (pytest.approx(48.43 - 42.20), pytest.approx(1.0))
    assert second.half == pytest.approx(0, abs=1e-9)
