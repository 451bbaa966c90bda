"""The paper's claims, C1 to C24, judge_all by results: holds, fails or undecided."""

from varscale.paper.claims import behaviour, gains
from varscale.paper.claims.base import CLAIMS, Everything, Verdict, judge_all

__all__ = ["CLAIMS", "Everything", "Verdict", "behaviour", "gains", "judge_all"]
