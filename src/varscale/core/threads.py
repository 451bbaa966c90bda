"""Let waiting threads sleep, so that a program is not slowed down by others beside it."""

import os

SPINS = "3000"
"""Rounds, some tens of microseconds, for which a thread waits awake. GNU's default is 300,000."""


def sleep_soon() -> None:
    """Let threads of GNU's OpenMP sleep soon while they wait; call it before torch is imported.

    By default they stay awake for milliseconds. If other programs run, the thread that they wait
    for may itself be waiting for their core. Variables that are set already stay as they are.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
