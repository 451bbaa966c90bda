"""Print the tables of `docs/check.md` from `check.csv`.

python benchmarks/check_table.py
"""

from collections.abc import Iterator

import numpy as np
from check import DATASETS, FILE, Row
from rows import read_rows

from varscale.evaluation.metrics import interval


def values(rows: list[Row], part: str, name: str, **fixed: object) -> list[Row]:
    """Rows of one cell, in the order of their tasks."""
    found = [r for r in rows if (r.part, r.dataset) == (part, name)]
    found = [r for r in found if all(getattr(r, k) == v for k, v in fixed.items())]
    return sorted(found, key=lambda r: r.task)


def lines(rows: list[Row]) -> Iterator[str]:
    """Lines of the three tables."""
    yield "| dataset | shots | varscale | cleanlab, best variant | which | difference |"
    yield "|---|---|---|---|---|---|"
    for name in DATASETS:
        for shot in (5, 10):
            ours = values(rows, "labels", name, shot=shot, method="varscale")
            if not ours:
                continue
            own = np.array([r.value for r in ours])
            methods = {r.method for r in values(rows, "labels", name, shot=shot)} - {"varscale"}
            rivals = {
                m: np.array([r.value for r in values(rows, "labels", name, shot=shot, method=m)])
                for m in methods
            }
            best = max(sorted(rivals), key=lambda m: rivals[m].mean())
            mean, half = interval((own - rivals[best]).tolist())
            which = best.removeprefix("cleanlab, ")
            yield (
                f"| {name} | {shot} | {own.mean():.4f} | {rivals[best].mean():.4f} | {which} | "
                f"{mean:+.4f} ± {half:.4f} |"
            )
    yield ""
    yield "| dataset | classes | random | least certain | varscale | gain | worst start |"
    yield "|---|---|---|---|---|---|---|"
    for name in DATASETS:
        found = values(rows, "next", name)
        for way in sorted({r.way for r in found}):
            random, least, ours = (
                100 * np.array([r.value for r in values(rows, "next", name, way=way, method=m)])
                for m in ("random", "least certain", "varscale")
            )
            mean, half = interval((ours - random).tolist())
            yield (
                f"| {name} | {way} | {random.mean():.1f} | {least.mean():.1f} | "
                f"{ours.mean():.1f} | {mean:+.1f} ± {half:.1f} | {(ours - random).min():+.1f} |"
            )
    yield ""
    yield "| dataset | tasks | accuracy | mean error | bias | in the interval | its width |"
    yield "|---|---|---|---|---|---|---|"
    for name in DATASETS:
        found = values(rows, "accuracy", name)
        if not found:
            continue
        true, told, low, high = (
            100 * np.array([getattr(r, k) for r in found]) for k in ("value", "told", "low", "high")
        )
        inside = 100 * ((low <= true) & (true <= high)).mean()
        yield (
            f"| {name} | {len(found)} | {true.mean():.1f} | {abs(told - true).mean():.2f} | "
            f"{(told - true).mean():+.2f} | {inside:.1f} % | {(high - low).mean():.1f} |"
        )


if __name__ == "__main__":
    print("\n".join(lines(read_rows(FILE, Row))))
