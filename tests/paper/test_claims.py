"""Every verdict follows from rows: make the rows up, and the verdict follows them."""

import json
import re
import shutil

import numpy as np
import pytest

from varscale.cli.main import main
from varscale.paper.claims import CLAIMS, judge_all
from varscale.paper.evidence import Estimate, Everything, Evidence, above, below, within
from varscale.paper.grid import cells, entries
from varscale.paper.results import FLOAT32, Results, Row

EPISODES = 100


def row(cell, *, seed=0, accuracy=0.5, size="small", dataset="miniimagenet32", **other):
    figures = {
        "cell": cell,
        "size": size,
        "seed": seed,
        "config_hash": "c",
        "dataset": dataset,
        "dataset_hash": "d",
        "item": "32x32x3",
        "steps": 3000,
        "best_step": 3000,
        "val_accuracy": accuracy,
        "n_way": 5,
        "n_shot": 5 if cell.endswith("5s") else 1,
        "n_query": 15,
        "episodes": EPISODES,
        "accuracy": accuracy,
        "ci95": 0.002,
        "nll": 1.0,
        "ece": 0.01,
        "scale_mean": 10.0,
        "scale_min": 9.0,
        "scale_max": 11.0,
        "minutes": 5.0,
        "threads": 1,
        "precision": FLOAT32,
        "version": "0",
        "commit": "",
    }
    return Row(**{**figures, **other})


def arrays(accuracy, *, end=10.0, sigma=0.2, slow=1.0, width=5.0, varied=0.1, growing=False):
    generator = np.random.default_rng(0)
    steps = np.arange(1, 201) * 15
    common = generator.normal(size=(50, 1)) * np.ones((1, 64))
    own = generator.normal(size=(50, 64))
    return {
        "hits": np.full(EPISODES, round(75 * accuracy), dtype=np.uint16),
        "bins": np.zeros((3, 15)),
        "step": steps,
        "nll": np.ones(200),
        "scale_mean": np.linspace(100, end, 200),
        "scale_spread": np.full(200, sigma),
        "scale_p05": np.full(200, 10.0),
        "scale_p25": np.full(200, 10.0 + width / 4),
        "scale_p75": np.full(200, 10.0 + 3 * width / 4),
        "scale_p50": np.full(200, 10.0 + width / 2),
        "scale_p95": 10.0 + width * np.linspace(0.2 if growing else 1.0, 1.0, 200),
        "val_step": np.arange(1, 11) * 300,
        "val_accuracy": accuracy * (1 - np.exp(-np.arange(1, 11) / slow)),
        "loc": np.full(64, end),
        "task_loc": np.exp(varied * (common + 0.1 * own)),
    }


BETTER = {  # accuracies under which every claim of accuracy holds
    "pn_cosine": 0.40, "pn_euclidean": 0.44, "svs": 0.50, "dsvs": 0.53, "davs_support": 0.54,
    "davs": 0.55, "davs_bare": 0.45, "davs_noaux": 0.46, "davs_noprior": 0.50,
    "pn_resnet12": 0.5, "pn_cosine_resnet12": 0.5, "tadam": 0.6, "tadam_dsvs": 0.62,
    "svs_prior1_init1_": 0.47, "together_init1_": 0.40, "together": 0.45,
}  # fmt: skip


def accuracy_of(cell):
    names = sorted((n for n in BETTER if cell.startswith(n)), key=len)
    value = BETTER[names[-1]] if names else 0.5
    if cell.startswith("dsvs") and cell.endswith("5s"):
        value -= 0.01  # C7: more in 1-shot
    return value


def put(results, cell, changed):
    """Store three runs of a cell under which all claims hold, but for what is `changed`."""
    results.add_all(make_runs(cell, changed))


def make_runs(cell, changed):
    for seed in range(3):
        accuracy = changed.get("accuracy", accuracy_of(cell) + 1e-4 * seed)
        shape = {k: v for k, v in changed.items() if k != "accuracy"}
        slow = 2.0 if cell.startswith("pn") else 1.0
        shown = arrays(accuracy, **{"slow": slow, **shape})
        if not cell.startswith("davs"):  # as of real runs: only D-AVS has a scale for each task
            del shown["task_loc"]
        yield row(cell, seed=seed, accuracy=accuracy), shown
        if "init" in cell or cell == "svs_euclidean_5w5s":
            nll = 1.1
            if cell.startswith("together"):
                nll += 0.0 if "init100_" in cell else 1.0
            if "prior1_init1_" in cell:
                nll += 0.3
            frozen = {"nll": nll, "size": "frozen", "dataset": "frozen"}
            yield row(cell, seed=seed, **frozen), shown


@pytest.fixture(scope="module")
def convincing(tmp_path_factory):
    """Results under which all claims hold."""
    folder = tmp_path_factory.mktemp("results")
    Results(folder).add_all(run for cell in cells(entries()) for run in make_runs(cell, {}))
    bench = {f"scaler_overhead_{name}": 1.01 for name in ("svs", "dsvs", "davs")}
    (folder / "bench.json").write_text(json.dumps(bench))
    return folder


@pytest.fixture
def folder(convincing, tmp_path):
    """A copy of them, to change."""
    return shutil.copytree(convincing, tmp_path / "results")


def answers(folder):
    return {verdict.id: verdict.answer for verdict in judge_all(Everything.read(folder))}


def test_there_are_24_and_without_results_nothing_is_claimed(tmp_path):
    assert sorted(CLAIMS, key=lambda id: int(id[1:])) == [f"C{n}" for n in range(1, 25)]
    found = answers(tmp_path)
    assert found.pop("C23") == found.pop("C24") == "holds"  # mathematics
    assert set(found.values()) == {"undecided"}


def test_claims_are_about_cells_of_the_grid():
    known = {*cells(entries()), "grid_cosine_5w1s", "grid_cosine_5w5s"}  # chosen in validation
    for claim in CLAIMS.values():
        pairs = [pair.split(">") for pair in f"{claim['gains']} {claim['beside']}".split()]
        assert known.issuperset(name for pair in pairs for name in pair), claim["id"]
        assert {len(pair) for pair in pairs} <= {2}


def test_with_convincing_rows_all_hold(convincing):
    found = answers(convincing)
    assert found == dict.fromkeys(found, "holds")


@pytest.mark.parametrize(
    ("claim", "cell", "figures"),
    [
        ("C1", "svs_cosine_5w1s", {"accuracy": 0.3}),
        ("C2", "svs_euclidean_5w1s", {"accuracy": 0.3}),
        ("C3", "svs_euclidean_5w5s", {"accuracy": 0.3}),
        ("C4", "svs_cosine_20w5s", {"accuracy": 0.3}),
        ("C5", "dsvs_euclidean_5w1s", {"accuracy": 0.3}),
        ("C6", "svs_learned_cosine_5w1s", {"accuracy": 0.3}),
        ("C7", "dsvs_cosine_5w1s", {"accuracy": 0.3}),
        ("C8", "davs_cosine_5w1s", {"accuracy": 0.3}),
        ("C9", "davs_cosine_5w5s", {"accuracy": 0.3}),
        ("C10", "davs_noaux_cosine_5w1s", {"accuracy": 0.3}),
        ("C11", "dsvs_resnet12_5w5s", {"accuracy": 0.3}),
        ("C12", "tadam_dsvs_5w5s", {"accuracy": 0.3}),
        ("C13", "dsvs_euclidean_5w1s", {"slow": 30.0}),
        ("C14", "svs_init1000_lr1.0e-3_euclidean_5w5s", {"end": 20.0}),
        ("C15", "svs_init100_lr1.0e-2_euclidean_5w5s", {"end": 20.0}),
        ("C16", "svs_prior1000_init1_euclidean_5w5s", {"accuracy": 0.3}),
        ("C16", "svs_prior1_init1_euclidean_5w5s", {"accuracy": 0.5}),
        ("C17", "svs_prior1_init1_euclidean_5w5s", {"accuracy": 0.3}),
        ("C17", "together_init1_euclidean_5w5s", {"accuracy": 0.45}),
        ("C19", "dsvs_euclidean_5w1s", {"width": 0.01}),
        ("C19", "dsvs_euclidean_5w5s", {"growing": True}),
        ("C20", "davs_cosine_5w5s", {"varied": 0.001}),
        ("C21", "svs_learned_cosine_5w1s", {"sigma": 0.01}),
        ("C22", "svs_cosine_5w1s", {"accuracy": 0.1}),
    ],
)
def test_other_rows_another_verdict(folder, claim, cell, figures):
    put(Results(folder), cell, figures)
    assert answers(folder)[claim] == "fails"


def test_overhead_follows_the_bench(tmp_path):
    (tmp_path / "bench.json").write_text(
        json.dumps({f"scaler_overhead_{n}": 1.2 for n in ("svs", "dsvs", "davs")})
    )
    assert answers(tmp_path)["C18"] == "fails"


def test_one_seed_decides_nothing(folder):
    rows = (folder / "small.csv").read_text().splitlines()
    (folder / "small.csv").write_text(
        "\n".join(r for r in rows if not re.search(",small,[12],", r))
    )
    found = answers(folder)
    assert {found[f"C{n}"] for n in range(1, 14)} == {"undecided"}


def test_convergence_is_compared_seed_by_seed(tmp_path):
    results = Results(tmp_path)
    for shot in (1, 5):
        for seed in (0, 1, 2):
            pn = arrays(0.5)
            pn["val_accuracy"] = np.linspace(0, 0.5, 10) if seed == 0 else np.full(10, 0.5)
            results.add(row(f"pn_euclidean_5w{shot}s", seed=seed), pn)
            dsvs = arrays(0.5)
            dsvs["val_accuracy"] = np.array([0, 0, 0] + [0.6] * 7)
            if seed:  # the run of seed 0 is not there yet
                results.add(row(f"dsvs_euclidean_5w{shot}s", seed=seed), dsvs)
    (verdict,) = [v for v in judge_all(Everything.read(tmp_path)) if v.id == "C13"]
    assert verdict.answer == "fails"
    assert verdict.figures[0].endswith("-900 ± 0 steps (2 seeds)")


def test_a_rate_that_has_not_converged_decides_nothing(folder):
    put(Results(folder), "svs_init100_lr1.0e-4_euclidean_5w5s", {"end": 20.0})
    (verdict,) = [v for v in judge_all(Everything.read(folder)) if v.id == "C15"]
    assert verdict.answer == "undecided"
    assert verdict.figures[0] == "learning rates 1e-3 and 1e-2 agree, 1e-4 has not converged"


def test_frozen_embeddings_do_not_decide_what_is_said_of_accuracy(folder):
    (folder / "small.csv").unlink()
    found = {v.id: v for v in judge_all(Everything.read(folder))}
    for claim in ("C16", "C17"):
        assert found[claim].answer == "undecided"
        assert any(text.startswith("frozen, ") for text in found[claim].figures)


def test_the_best_of_four_priors_needs_four(folder):
    rows = (folder / "frozen.csv").read_text().splitlines()
    few = [r for r in rows if "prior1000" not in r]
    (folder / "frozen.csv").write_text("\n".join(few))
    found = {v.id: v for v in judge_all(Everything.read(folder))}
    assert any("NLL of SVS " in text for text in found["C17"].figures)
    assert not any("best of four" in text for text in found["C17"].figures)
    assert not any("frozen" in text for text in found["C16"].figures)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("bench.json", "{bad", "is not what varscale bench --json printed"),
        ("bench.json", '{"scaler_overhead_svs": null}', "is not what varscale bench"),
        ("small.zip", "PK", "is missing or damaged"),
    ],
)
def test_damaged_results_are_named(folder, capsys, file, content, message):
    (folder / file).write_text(content)
    assert main(["claims", "--results", str(folder)]) == 2
    assert message in capsys.readouterr().err


def test_a_row_without_figures_is_refused(folder):
    file = folder / "small.csv"
    head, *rows = file.read_text().splitlines()
    place = head.split(",").index("accuracy")
    cells = rows[0].split(",")
    cells[place] = "nan"
    file.write_text("\n".join([head, ",".join(cells)]))
    with pytest.raises(ValueError, match="without an accuracy"):
        answers(folder)


def test_24_lines(convincing, tmp_path, capsys):
    assert main(["claims", "--results", str(convincing)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 24
    assert lines[0].split()[0] == "C1"
    assert {line.split()[-1] for line in lines} == {"holds"}
    assert max(map(len, lines)) <= 100
    assert main(["claims", "--results", str(convincing), "--details"]) == 0
    assert "judged: within 1 point" in capsys.readouterr().out
    assert main(["claims", "--results", str(convincing), "c1", "C5"]) == 0
    first, figure, *others = capsys.readouterr().out.splitlines()
    assert first == "C1  SVS improves PN with the cosine in 1-shot: holds"
    assert "(3 seeds)" in figure
    assert [line[:2] for line in others if line[0] == "C"] == ["C5"]
    assert main(["claims", "--results", str(tmp_path)]) == 2
    assert "Expected a folder of results" in capsys.readouterr().err


def test_noise_leaves_it_undecided(tmp_path):
    results = Results(tmp_path)
    for seed, gain in enumerate((0.05, -0.04, 0.01)):
        results.add(row("pn_euclidean_5w1s", seed=seed), arrays(0.5))
        better = row("svs_euclidean_5w1s", seed=seed, accuracy=0.5 + gain)
        results.add(better, arrays(0.5 + gain))
    assert answers(tmp_path)["C2"] == "undecided"


def test_gains_are_paired_by_seed_and_by_task(tmp_path):
    results = Results(tmp_path)
    for seed, (a, b) in enumerate([(0.5, 0.51), (0.6, 0.61), (0.4, 0.41)]):
        results.add(row("pn_cosine_5w1s", seed=seed, accuracy=a), arrays(a))
        results.add(row("svs_cosine_5w1s", seed=seed, accuracy=b), arrays(b))
    gain = Evidence(results, "small").gain("svs_cosine_5w1s", "pn_cosine_5w1s")
    assert (gain.mean, gain.runs) == (pytest.approx(1.0), 3)
    assert gain.half == pytest.approx(0.0, abs=1e-9)

    one = Results(tmp_path / "one")
    hits = np.tile([30, 40], EPISODES // 2).astype(np.uint16)
    for cell, shift in (("pn_cosine_5w1s", 0), ("svs_cosine_5w1s", 3)):
        mean = (hits + shift).mean() / 75
        one.add(row(cell, accuracy=mean), {**arrays(0.5), "hits": hits + shift})
    gain = Evidence(one, "small").gain("svs_cosine_5w1s", "pn_cosine_5w1s")
    assert gain.mean == pytest.approx(4.0)
    assert gain.half == pytest.approx(0.0, abs=1e-9)


def test_a_grid_search_chooses_in_validation(tmp_path):
    results = Results(tmp_path)
    for seed in (0, 1):
        for cell, val, accuracy in (("a", 0.6 - 0.1 * seed, 0.9), ("b", 0.5 + 0.2 * seed, 0.5)):
            figures = {"val_accuracy": val, "accuracy": accuracy}
            results.add(row(cell, seed=seed, **figures), arrays(accuracy))
    results.add(row("a", seed=3, val_accuracy=0.99), arrays(0.5))  # b has no such seed
    results.add(row("b", seed=2), arrays(0.5))
    evidence = Evidence(results, "small")
    evidence.choose("grid", ["a", "b"])
    chosen = [(r.seed, r.cell) for r in evidence.runs("grid")]
    assert chosen == [(seed, "b") for seed in (0, 1, 2)]
    evidence.choose("none", ["a", "c"])
    assert evidence.runs("none") == []


def test_unlike_tests_are_not_compared(tmp_path):
    results = Results(tmp_path)
    results.add(row("pn_cosine_5w1s"), arrays(0.5))
    results.add(row("svs_cosine_5w1s", n_query=1), arrays(0.5))
    with pytest.raises(ValueError, match="not tested on the same tasks"):
        Evidence(results, "small").gain("svs_cosine_5w1s", "pn_cosine_5w1s")


def test_answers():
    up, down, unsure = (Estimate("", m, h, 3) for m, h in ((2, 1), (-2, 1), (0.5, 1)))
    assert [above(0, up), above(0, up, down), above(0, up, unsure), above(0, up, None)] == [
        "holds",
        "fails",
        "undecided",
        "undecided",
    ]
    assert above(0, Estimate("", 2, 1, 1)) == "undecided"  # a single seed
    assert [below(4, up), below(0.5, up), below(2, up)] == ["holds", "fails", "undecided"]
    small, large, wide = (Estimate("", m, h, 3) for m, h in ((0.2, 0.3), (3, 1), (0, 2)))
    assert [within(1, small), within(1, small, large), within(1, wide), within(1, None)] == [
        "holds",
        "fails",
        "undecided",
        "undecided",
    ]
