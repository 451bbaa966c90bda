"""The paper's claims, C1 to C24, judged by results: holds, fails or undecided."""

from varscale.paper.claims import behaviour, gains
from varscale.paper.claims.base import CLAIMS, Everything, Verdict, judged

__all__ = ["CLAIMS", "Everything", "Verdict", "behaviour", "gains", "judged"]
