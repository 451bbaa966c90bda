"""Our figures in the headers of configs, beside the published ones."""

from pathlib import Path

from varscale.core.files import write_whole
from varscale.paper.results import Results, Row, label
from varscale.paper.tables import accuracy_over, written

OURS, PUBLISHED = "# Ours, ", "# Published: "


def with_ours(text: str, rows: list[Row]) -> str:
    """The text of a config whose header says what its runs gave, below what was published."""
    lines = [line for line in text.splitlines() if not line.startswith(OURS)]
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kinds.setdefault((row.scale, label(row.dataset, row.precision)), []).append(row)
    said = [_said(each) for each in kinds.values()]
    (place,) = [n for n, line in enumerate(lines, start=1) if line.startswith(PUBLISHED)] or [0]
    return "\n".join([*lines[:place], *said, *lines[place:]]) + "\n"


def _said(rows: list[Row]) -> str:
    one, minutes = rows[0], sum(row.minutes for row in rows) / len(rows)
    seeds = "1 seed" if len(rows) == 1 else f"{len(rows)} seeds"
    return (
        f"{OURS}varscale reproduce --scale {one.scale}, {label(one.dataset, one.precision)}, "
        f"{one.steps:,} steps, "
        f"{seeds}: {written(*accuracy_over(rows))} %, {minutes:.1f} minutes a run."
    )


def write_headers(folder: Path, results: Results) -> int:
    """Bring the headers of all configs in a folder up to date with results; how many there are."""
    files = sorted(folder.glob("*/*.yaml"))
    if not files:
        raise ValueError(f"Expected a folder of folders of configs, got {folder}.")
    rows = [row for scale in ("small", "frozen", "paper") for row in results.rows(scale)]
    for file in files:
        name = file.relative_to(folder).with_suffix("").as_posix()
        text = file.read_text()
        own = [row for row in rows if row.config == name]
        if own or OURS in text:
            write_whole(file, with_ours(text, own).encode())
    return len(files)
