"""Whether a run's scale has settled, and what to do if it has not."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

SETTLED = 0.05
"""Largest relative change of a scale over the last tenth of a run that counts as settled."""


def follow_scale(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Where a scale began and ended, and its drift over the last tenth of the steps.

    The drift is the relative change between the two halves of that tenth, doubled: each half is
    averaged, because single steps jitter. Few steps tell nothing, so it is at least 20 of them.

    Args:
        rows: Metrics of the steps, as `read_metrics` gives them.

    Example:
        >>> follow_scale([{"scale_mean": 10.0 + n} for n in range(40)])["drift"]
        0.5797101449275361
    """
    path = [row["scale_mean"] for row in rows if row.get("scale_mean") is not None]
    if not path:
        return {}
    half = max(len(path) // 20, min(len(path) // 2, 10), 1)
    earlier, later = path[-2 * half : -half] or path[:1], path[-half:]
    before, after = sum(earlier) / len(earlier), sum(later) / len(later)
    drift = 2 * (after / before - 1) if before else math.inf
    return {"begin": path[0], "end": path[-1], "drift": drift}


def describe_scale(scale: Mapping[str, float]) -> str:
    """Describe a result's scale in one line, with a remedy if it has not settled.

    A scale that was refitted needs none: the refit replaces the last value.
    """
    text = f"scale: {scale['begin']:.3g} at the first step, {scale['end']:.3g} at the last"
    drift = scale["drift"]
    if abs(drift) <= SETTLED:
        text += ", settled"
    else:
        way = "rising" if drift > 0 else "falling"
        text += f", still {way} ({100 * drift:+.0f} % over the last steps)"
        if "relearned" not in scale:
            text += ": train longer"
            if scale.get("log") == 0:
                text += ", or use a log-normal family, which needs no initial value"
    if "relearned" in scale:
        text += f"; refitted to {scale['relearned']:.3g} on the validation classes"
    return text + "."
