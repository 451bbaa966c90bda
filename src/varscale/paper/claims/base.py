"""What a claim is, and how it is judged."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from varscale.paper.evidence import Answer, Estimate, Evidence, Fact
from varscale.paper.grid import entries
from varscale.paper.results import Results


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        id: C1 to C24.
        statement: The claim.
        answer: What the figures say.
        figures: The figures it was judged by.
        runs: Runs that they come from; 0 for what needs none.
        caveat: What to know when reading it.
    """

    id: str
    statement: str
    answer: Answer
    figures: list[str]
    runs: int
    caveat: str = ""


@dataclass(frozen=True)
class Everything:
    """All results that claims look at.

    Attributes:
        small: miniImageNet at the small size.
        frozen: Scalers alone, on frozen embeddings, by dataset.
        bench: What `varscale bench --json` printed.
    """

    small: Evidence
    frozen: dict[str, Evidence] = field(default_factory=dict)
    bench: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Everything":
        """From the folder of results."""
        results, bench = Results(folder), folder / "bench.json"
        datasets = sorted({row.dataset for row in results.rows("frozen")})
        small = Evidence(results, "small", "miniimagenet32")
        for entry in entries("baselines", row="fixed scale, chosen in validation"):
            small.choose(grid_search(shot=int(entry.column[0])), list(entry.cells))
        return cls(
            small,
            {name: Evidence(results, "frozen", name) for name in datasets},
            _measured(bench) if bench.is_file() else {},
        )


def grid_search(*, shot: int) -> str:
    """What `Everything.small` calls the fixed scale that is best in validation."""
    return f"grid_cosine_5w{shot}s"


def _measured(file: Path) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in json.loads(file.read_text()).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not what varscale bench --json printed: {error}.") from error


Judgement = tuple[Answer, list[Estimate | Fact | None]]
Judge = Callable[[Everything], Judgement]
CLAIMS: dict[str, tuple[str, str, Judge]] = {}


def claim(id: str, statement: str, caveat: str = "") -> Callable[[Judge], Judge]:
    """Enter a claim under its number."""

    def enter(judge: Judge) -> Judge:
        CLAIMS[id] = statement, caveat, judge
        return judge

    return enter


def judge_all(everything: Everything) -> list[Verdict]:
    """Judge all claims, in order."""
    verdicts = []
    for id in sorted(CLAIMS, key=lambda id: int(id[1:])):
        statement, caveat, judge = CLAIMS[id]
        places = [everything.small, *everything.frozen.values()]
        for place in places:
            place.absent.clear()
        answer, evidence = judge(everything)
        runs = max((e.runs for e in evidence if e is not None), default=0)
        figures = [str(e) for e in evidence if e is not None]
        absent = list(dict.fromkeys(name for place in places for name in place.absent))
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            figures.append(f"not run: {', '.join(absent[:3])}{more}")
        verdicts.append(Verdict(id, statement, answer, figures or ["no runs yet"], runs, caveat))
    return verdicts
