"""Figures of runs as text."""

from typing import Any


def describe(report: dict[str, Any]) -> str:
    """Describe the facts of a report in a sentence."""
    item = "x".join(map(str, report["item"]))
    each = "a class" if report["queries"] == "balanced" else "a task"
    return (
        f"{report['dataset']} ({report['dataset_hash'][:12]}), {report['split']} classes, items "
        f"{item}, {report['n_way']}-way {report['n_shot']}-shot, {report['n_query']} queries "
        f"{each}, {report['episodes']:,} episodes, seed {report['seed']}"
        + (f", {report['samples']} draws of the scale" if report["samples"] else "")
        + (f", {report['precision']}" if report["precision"] != "32-true" else "")
    )


def in_words(several: dict[str, Any]) -> str:
    """Describe a mean over seeds, with both intervals."""
    return (
        f"over {several['n']} runs: {percent(several['mean'], several['ci95'])} (1.96 s/√n, as "
        f"published), ± {100 * several['t95']:.2f} by Student's t"
    )


def percent(mean: float, half: float) -> str:
    """Format a fraction and its half-width in per cent."""
    return f"{100 * mean:.2f} ± {100 * half:.2f}"
