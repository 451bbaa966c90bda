"""Rows of the layout before are taken over: those that are up to date stay so, no others."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from paper.test_claims import arrays, row
from paper.test_results import same

from varscale.cli.main import main
from varscale.paper.importer import stand_in, take
from varscale.paper.reproduce import Job
from varscale.paper.results import Results

OLD = [  # config, scale, seed, dataset, item, precision, hash as the code of commit 9f90345 had it
    ("miniimagenet/svs_cosine_5w1s", "small", 1, "miniimagenet32", "32x32x3", "32-true",
     "9b5796464130ff0e1c1f021c9b50f5c378021c8005062368575cdf19adecb72d"),
    ("miniimagenet/svs_elbo_init10_euclidean_5w5s", "frozen", 0, "banking77", "384", "32-true",
     "926013b53dcdc4635b4cf2ee587498eb9a5171c58f523029815cd95ef3727f51"),
    ("omniglot/dsvs_cosine_20w1s", "small", 0, "omniglot-rotated", "28x28x1", "32-true",
     "d674f16f02389f6bb1468b08ea2076cb44c3c0d3e08bdef8204f71344de7c1c9"),
    ("miniimagenet/davs_cosine_5w5s", "paper", 3, "miniimagenet", "84x84x3", "bf16-mixed",
     "431f76829eeff0b77ad90ff13435ff289423edf7eae2ad8317a0249e4ecf0594"),
    ("miniimagenet/tadam_dsvs_5w5s", "small", 0, "miniimagenet32", "32x32x3", "32-true",
     "7aba5e37c78c1e857c8cbbbb4e24257f6dd075d3a0090a289049e57f2a052b68"),
]  # fmt: skip
STALE = (
    "miniimagenet/davs_cosine_5w1s", "small", 0, "miniimagenet32", "32x32x3", "32-true",
    "68c957de85185ee66628881f69ebd3cb04c07d61a6e4e539155d9a4a991ed24d",
)  # fmt: skip
NAMES = ("config", "scale", "seed", "dataset", "item", "precision", "config_hash")


def write_old(folder, rows, **other):
    """A folder of the layout before."""
    lines = {}
    for values in rows:
        named = dict(zip(NAMES, values, strict=True))
        full = vars(row("any", commit="263510a")) | named | other
        full = {k: v for k, v in full.items() if k not in ("cell", "size") and v is not None}
        lines.setdefault(named["scale"], []).append(full)
        kind = named["dataset"]
        if named["precision"] != "32-true":
            kind += f"-{named['precision']}"
        name = f"{named['config'].replace('/', '.')}-{kind}-{named['seed']}.npz"
        path = folder / named["scale"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **arrays(0.5, end=named["seed"]))
    for scale, found in lines.items():
        with (folder / f"{scale}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, found[0])
            writer.writeheader()
            writer.writerows(found)
    return folder


def is_current(found):
    job = Job(found.cell, found.size, found.seed, found.dataset, found.precision)
    return found.config_hash == job.resolve(stand_in(found.dataset, found.item)).hash


@pytest.mark.parametrize("values", OLD, ids=lambda v: f"{v[0]}-{v[5]}")
def test_a_row_that_was_up_to_date_stays_so(tmp_path, values):
    results = Results(tmp_path / "new")
    assert take(results, write_old(tmp_path / "old", [values])) == 1
    (found,) = results.rows(values[1])
    assert is_current(found)
    assert found.cell == values[0].removeprefix("miniimagenet/").replace("/", "_")
    assert (found.size, found.seed, found.commit) == (values[1], values[2], "263510a")
    assert same(results.arrays(found), arrays(0.5, end=values[2]))


def test_a_row_of_another_config_stays_out_of_date(tmp_path):
    results = Results(tmp_path / "new")
    other = (*OLD[0][:6], "0" * 64)
    assert take(results, write_old(tmp_path / "old", [STALE, other])) == 2
    found = results.rows("small")
    assert [r.config_hash for r in found] == [STALE[-1], "0" * 64]
    assert not any(map(is_current, found))


def test_the_first_rows_had_no_precision_and_no_commit(tmp_path):
    folder = write_old(tmp_path / "old", OLD[:1], precision=None, commit=None)
    assert take(Results(tmp_path / "new"), folder) == 1
    (found,) = Results(tmp_path / "new").rows("small")
    assert (found.precision, found.commit) == ("32-true", "")
    assert is_current(found)


def test_an_old_row_that_cannot_be_read_is_named(tmp_path):
    old = write_old(tmp_path / "old", OLD[:1])
    file = old / "small.csv"
    head, line, *_ = file.read_text().splitlines()
    file.write_text(f"{head}\n{line[:40]}\n")
    with pytest.raises(ValueError, match=r"small.csv has a row that cannot be read"):
        take(Results(tmp_path / "new"), old)
    file.write_text(f"{head}\n")
    assert take(Results(tmp_path / "new"), old) == 0


def test_rows_are_taken_once_and_ours_stay(tmp_path):
    theirs, ours = Results(tmp_path / "theirs"), Results(tmp_path / "ours")
    rows = [row("svs_cosine_5w1s", seed=seed, commit="new") for seed in range(3)]
    theirs.add_all([(one, arrays(0.5)) for one in rows])
    ours.add(replace(rows[0], accuracy=0.4), arrays(0.4))
    ours.add(replace(rows[1], accuracy=0.4, commit=""), arrays(0.4))
    assert take(ours, theirs.folder) == 2
    assert take(ours, theirs.folder) == 0
    assert [r.accuracy for r in ours.rows("small")] == [0.4, 0.5, 0.5]  # no commit: replaced
    assert same(ours.arrays(rows[1]), arrays(0.5))
    with pytest.raises(ValueError, match="Expected a folder of results"):
        take(ours, tmp_path / "nothing")


def test_the_command_takes_an_old_folder(tmp_path, capsys):
    old = write_old(tmp_path / "old", OLD)
    words = ["reproduce", "table3", "--show", "--json", "--results", str(tmp_path / "new")]
    assert main([*words, "--take", str(old)]) == 0
    shown = capsys.readouterr()
    assert f"{len(OLD)} rows of {old} are new." in shown.err
    assert '"seeds": [1]' in shown.out
    next((old / "small").glob("*svs_cosine_5w1s*")).unlink()
    words[-1] = str(tmp_path / "other")
    assert main([*words, "--take", str(old)]) == 2
    assert "is missing or damaged" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
