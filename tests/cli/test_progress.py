"""Lines of progress where there is no terminal."""

import time

from varscale.cli.progress import Bar


def test_time_left_is_told_once_a_pace_is_known(monkeypatch, capsys):
    clock = iter([100.0, 160.0])  # read at the start, and where a pace is known
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with Bar("runs") as bar:
        for done in (1, 2, 3):
            bar(done, 3, f"run {done}")
    assert capsys.readouterr().err.splitlines() == [
        "runs: 1 of 3; run 1",
        "runs: 2 of 3, 60 s left; run 2",
        "runs: 3 of 3; run 3",
    ]


def test_a_line_per_tenth_even_if_steps_do_not_meet_it(capsys):
    with Bar("rows") as bar:
        for done in (*range(7, 100, 7), 100):
            bar(done, 100)
    shown = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["14", "21", "35", "42", "56", "63", "70", "84", "91", "100"]
