"""The paper's claims, C1 to C24, judged by results: holds, fails or undecided.

`claims.csv` has a line for each. A claim about accuracies lists in `gains` cells and those that
they should beat, each by `above 0` points, or `within 1` point; in `difference`, what to call the
first of these gains minus the second, if that is judged too; in `beside`, gains to show. The other
claims name the function of `behaviour` that judges them.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from varscale.paper import behaviour
from varscale.paper.evidence import Answer, Everything, Evidence, Judgement, above, within

FILE = Path(__file__).with_suffix(".csv")
CLAIMS = {line["id"]: line for line in csv.DictReader(FILE.read_text().splitlines())}


@dataclass(frozen=True)
class Verdict:
    """What became of a claim."""

    id: str
    statement: str
    answer: Answer
    figures: list[str]  # that it was judged by
    runs: int  # that they come from; 0 for what needs none
    caveat: str = ""


def judge_all(everything: Everything) -> list[Verdict]:
    """Judge all claims, in order."""
    verdicts = []
    for id, claim in CLAIMS.items():
        places = [everything.small, *everything.frozen.values()]
        for place in places:
            place.absent.clear()
        if claim["gains"]:
            answer, evidence = _compare(everything.small, claim)
        else:
            answer, evidence = getattr(behaviour, claim["judge"])(everything)
        runs = max((e.runs for e in evidence if e is not None), default=0)
        figures = [str(e) for e in evidence if e is not None]
        absent = list(dict.fromkeys(name for place in places for name in place.absent))
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            figures.append(f"not run: {', '.join(absent[:3])}{more}")
        figures = figures or ["no runs yet"]
        verdicts.append(Verdict(id, claim["statement"], answer, figures, runs, claim["caveat"]))
    return verdicts


def _compare(small: Evidence, claim: dict[str, str]) -> Judgement:
    """Judge who is more accurate than whom, on the same test tasks at the small size."""
    judged, beside = (
        [small.gain(*pair.split(">")) for pair in claim[column].split()]
        for column in ("gains", "beside")
    )
    if claim["difference"]:
        first, second = judged
        judged.append(first and second and first.minus(second, claim["difference"]))
    rule, points = claim["judge"].split()
    answer = {"above": above, "within": within}[rule](float(points), *judged)
    return answer, [*judged, *beside]
