"""Paired comparison of two evaluations on the same tasks."""

from typing import Any

from varscale.evaluation.evaluation import Evaluation
from varscale.evaluation.metrics import interval


def compare(a: Evaluation, b: Evaluation) -> dict[str, Any]:
    """Compare two evaluations: the figures of both, and the difference task by task (M20)."""
    difference, half = interval(b.accuracy - a.accuracy)
    nll, nll_half = interval(b.nll - a.nll)
    sides = {"a": a.summary(), "b": b.summary()}
    for summary in sides.values():
        del summary["per_class"]
    return {
        **sides,
        "difference": difference,
        "ci95": half,
        "nll_difference": nll,
        "nll_ci95": nll_half,
    }
