"""C13 to C24: how training goes, where the scale goes, and what mathematics decides."""

from itertools import product

import numpy as np
import torch

from varscale.core.random import normal
from varscale.evaluation.metrics import t_interval
from varscale.functional import euclidean_logits, normalize, query_nll
from varscale.paper.evidence import (
    Answer,
    Estimate,
    Everything,
    Evidence,
    Fact,
    Judgement,
    above,
    all_hold,
    below,
    component_shares,
    within,
)
from varscale.paper.grid import cell, cell_at

INITS = (1, 10, 100, 1000)
MARGIN = 1.0  # points within which two accuracies count as equal


def _over_runs(what: str, values: list[float], unit: str) -> Estimate | None:
    if len(values) < 2:
        return None
    mean, half = t_interval(values)
    return Estimate(what, mean, half, len(values), unit)


def convergence(e: Everything) -> Judgement:
    """Steps that D-SVS saves until PN's best validation."""
    found: list[Estimate | None] = []
    for shot in (1, 5):
        pairs = e.small.pairs(*(cell(name, "euclidean", shot=shot) for name in ("dsvs", "pn")))
        saved = []
        for dsvs, pn in ((e.small.results.arrays(row) for row in pair) for pair in pairs):
            goal = float(pn["val_accuracy"].max())
            saved.append(_reached(pn, goal) - _reached(dsvs, goal))
        found.append(_over_runs(f"{shot}-shot, steps saved to PN's best", saved, "steps"))
    return above(-300, *found), list(found)


def _reached(arrays: dict[str, np.ndarray], goal: float) -> float:
    """The first validated step with a validation accuracy; twice the last where there is none."""
    there = np.flatnonzero(arrays["val_accuracy"] >= goal)
    steps = arrays["val_step"]
    return float(steps[there[0]] if len(there) else 2 * steps[-1])


def _meet(e: Everything, names: list[str]) -> Judgement:
    """Whether the scales of some cells end within 5 % of each other, on every dataset."""
    facts, answers = [], []
    for dataset, evidence in e.frozen.items():
        runs = [evidence.arrays(name) for name in names]
        if not all(runs):
            continue
        ends = [np.mean([run["scale_mean"][-1] for run in each]) for each in runs]
        spread = float(np.ptp(ends) / np.mean(ends))
        shown = ", ".join(f"{end:.2f}" for end in ends)
        count = min(map(len, runs))
        facts.append(Fact(f"{dataset}: {shown} (range {100 * spread:.1f} %)", count))
        answers.append(_answer(spread < 0.05))
    return (all_hold(*answers) if answers else "undecided"), [*facts]


def _answer(true: bool) -> Answer:
    return "holds" if true else "fails"


def _by_start(table: str, row: str) -> list[str]:
    """The cells of a row, for each initial value."""
    return [cell_at(table, row, f"start {init}") for init in INITS]


def any_start(e: Everything) -> Judgement:
    """Where mu ends, by its initial value."""
    return _meet(e, _by_start("fig3", "fig3a, rate 1e-3"))


def any_rate(e: Everything) -> Judgement:
    """Where mu ends, by its learning rate."""
    arrived, all_three = (
        _meet(e, [cell_at("fig3", "fig3b, start 100", f"rate {rate}") for rate in rates])
        for rates in (("1.0e-3", "1.0e-2"), ("1.0e-4", "1.0e-3", "1.0e-2"))
    )
    if arrived[0] != "holds" or all_three[0] == "holds":
        return arrived[0], all_three[1]
    found = [Fact("learning rates 1e-3 and 1e-2 agree, 1e-4 has not converged"), *all_three[1]]
    return "undecided", found


def _nll(evidence: Evidence, names: list[str]) -> list[float]:
    """Mean over the runs of each cell; NaN for a cell without any."""
    means = []
    for name in names:
        runs = evidence.runs(name)
        means.append(float(np.mean([row.nll for row in runs])) if runs else float("nan"))
    return means


def insensitivity(e: Everything) -> Judgement:
    """Gains of table 6 over its centre, where prior mean and initial value are 100."""
    names = [name for prior in INITS for name in _by_start("table6", f"prior mean {prior}")]
    grid = dict(zip(product(INITS, INITS), names, strict=True))
    large = [place for place in grid if max(place) >= 100]
    centre, smallest = grid[100, 100], grid[1, 1]
    gains = [e.small.gain(grid[place], centre) for place in large if place != (100, 100)]
    loss = e.small.gain(smallest, centre)
    notes = []
    for dataset, evidence in e.frozen.items():
        nll = dict(zip(grid, _nll(evidence, names), strict=True))
        best = float(np.min(list(nll.values())))
        if np.isnan(best):
            continue
        text = (
            f"frozen, {dataset}: NLL above the best by {nll[1, 1] - best:.3f} at (1, 1), by up to "
            f"{max(nll[place] - best for place in large):.3f} where prior mean or initial value is "
            "100 or more"
        )
        notes.append(Fact(text, len(evidence.runs(smallest))))
    answer = all_hold(within(MARGIN, *gains), below(-MARGIN, loss))
    return answer, [loss, *gains, *notes]


def over_together(e: Everything) -> Judgement:
    """Gains over the scale trained together with the weights, and how steady both are."""
    table6 = [_by_start("table6", f"prior mean {prior}") for prior in INITS]
    ours, together = table6[0], _by_start("table5", "PN, trained together")
    gains = [e.small.gain(a, b) for a, b in zip(ours, together, strict=True)]
    steadier = _steadier(e.small, ours, together)
    facts = []
    for dataset, evidence in e.frozen.items():
        nll = np.array([_nll(evidence, names) for names in table6])
        rows = {
            "SVS": nll[0],
            "SVS, best of four priors": nll.min(axis=0),
            "SVS, KL / n": _nll(evidence, _by_start("table5", "PN + SVS, KL weight 1/n")),
            "together": _nll(evidence, together),
            "together by SGD": _nll(evidence, _by_start("table5", "PN, trained together by SGD")),
        }
        count = len(evidence.runs(ours[0]))
        facts += [
            Fact(f"frozen, {dataset}: NLL of {name} {', '.join(f'{v:.3f}' for v in values)}", count)
            for name, values in rows.items()
            if not np.isnan(values).any()
        ]
    return above(0, *gains, steadier), [*gains, steadier, *facts]


def _steadier(evidence: Evidence, ours: list[str], theirs: list[str]) -> Estimate | None:
    """How much smaller our range of accuracies over initial values is, over shared seeds."""
    accuracies = {
        name: {row.seed: 100 * row.accuracy for row in evidence.runs(name)}
        for name in [*ours, *theirs]
    }
    seeds = sorted(set.intersection(*(set(runs) for runs in accuracies.values())))
    ranges = [
        np.ptp([accuracies[name][seed] for name in theirs])
        - np.ptp([accuracies[name][seed] for name in ours])
        for seed in seeds
    ]
    return _over_runs("range over initial values, together - SVS", ranges, "points")


def overhead(e: Everything) -> Judgement:
    """Time of a step with a scaler over one without."""
    keys = [f"scaler_overhead_{name}" for name in ("svs", "dsvs", "davs")]
    if not all(key in e.bench for key in keys):
        return "undecided", []
    most = max(e.bench[key] for key in keys)
    return _answer(most < 1.05), [Fact(f"{key} {e.bench[key]:.3f}") for key in keys]


def entries_of_dsvs(e: Everything) -> Judgement:
    """Range of the entries of D-SVS's scale, and how it changes late in training."""
    ranges: list[Estimate | None] = []
    changes: list[Estimate | None] = []
    for shot in (1, 5):
        spread, late = [], []
        for arrays in e.small.arrays(cell("dsvs", "euclidean", shot=shot)):
            width = arrays["scale_p95"] - arrays["scale_p05"]
            spread.append(100 * float(width[-1] / abs(arrays["scale_p50"][-1])))
            late.append(100 * float(abs(width[-1] - width[-(len(width) // 4)]) / width[-1]))
        ranges.append(_over_runs(f"{shot}-shot, 5 % to 95 % range over the median", spread, "%"))
        changes.append(_over_runs(f"{shot}-shot, its change in the last quarter", late, "%"))
    return all_hold(above(1, *ranges), below(10, *changes)), [*ranges, *changes]


def adaptation(e: Everything) -> Judgement:
    """How the scales of D-AVS vary over test tasks."""
    variation, shares = [], []
    for arrays in e.small.arrays(cell("davs", "cosine", shot=5)):
        variation.append(float(np.log(arrays["task_loc"].clip(1e-6)).std(0).mean()))
        shares.append(100 * component_shares(arrays["task_loc"])[:3])
    varies = _over_runs("standard deviation of log scales over tasks", variation, "")
    components = [
        _over_runs(f"share of principal component {n}", [float(s[n - 1]) for s in shares], "%")
        for n in (1, 2, 3)
    ]
    return above(0.01, varies), [varies, *components]


def stability(e: Everything) -> Judgement:
    """The smallest sigma of runs that learn it."""
    runs = [e.small.arrays(cell("svs_learned", "cosine", shot=shot)) for shot in (1, 5)]
    if not all(runs):
        return "undecided", []
    lowest = [float(arrays["scale_spread"].min()) for each in runs for arrays in each]
    text = f"smallest sigma {min(lowest):.3f} (clamp 0.01)"
    return _answer(min(lowest) > 0.0101), [Fact(text, len(lowest))]


def end_to_end(e: Everything) -> Judgement:
    """Accuracy over chance."""
    found = [
        _over_runs(f"{name} over chance", [100 * (r.accuracy - 0.2) for r in runs], "points")
        for name in (cell(scaler, "cosine", shot=1) for scaler in ("svs", "dsvs", "davs"))
        for runs in [e.small.runs(name)]
    ]
    return above(0, *found), list(found)


def _task() -> tuple[torch.Tensor, torch.Tensor]:
    """1000 queries and 5 centres in 16 dimensions."""
    query, centres = normal(0, "checks", 0, 1005, 16).tensor_split([1000])
    return query, centres


def argmax_under_scales(e: Everything) -> Judgement:
    """Answers in per cent that a change of the scale changes: by scalars, and by vectors."""
    query, centres = map(normalize, _task())
    before = euclidean_logits(query, centres, 1.0).argmax(-1)

    def changed(alpha: float | torch.Tensor) -> float:
        after = euclidean_logits(query, centres, alpha).argmax(-1)
        return 100 * float((after != before).double().mean())

    scalar = max(map(changed, (0.01, 10.0, 1000.0)))
    vector = changed(normal(0, "checks/vector", 0, 1, query.shape[1])[0].exp())
    text = f"answers changed: by scalars {scalar} %, by vectors {vector:.1f} %"
    return _answer(scalar == 0 and vector > 0), [Fact(text)]


def gradient_under_a_stretch(e: Everything) -> Judgement:
    """How the scale's gradient grows when embeddings do, at equal probabilities."""
    query, centres = _task()
    labels = torch.arange(len(query)) % len(centres)

    def gradient(stretch: float) -> torch.Tensor:
        alpha = torch.full((1,), stretch**-2, dtype=torch.float64, requires_grad=True)
        logits = euclidean_logits(stretch * query, stretch * centres, alpha)
        (found,) = torch.autograd.grad(query_nll(logits, labels), alpha)
        return found

    ratio = float(gradient(3.0) / gradient(1.0))
    text = f"embeddings x 3, scale / 9: gradient x {ratio:.4f}"
    return _answer(abs(ratio - 9) < 1e-6), [Fact(text)]
