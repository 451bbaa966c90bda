"""The contract of members as functions: hold a scaler, host or backbone of yours to it.

Each function raises AssertionError, which says what was expected and how to mend it. Nothing here
needs pytest or knows runs.
"""

from varscale.testing.members import check_backbone, check_host, check_scaler

__all__ = ["check_backbone", "check_host", "check_scaler"]
