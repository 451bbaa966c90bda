"""Threads of a command wait asleep, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from varscale.core.threads import SPINS


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, SPINS),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ],
)
def test_a_command_asks_before_torch_is_there(given, found):
    """torch's OpenMP reads the variables once, as it is loaded."""
    code = (
        "import sys; from varscale.core import threads\n"
        "def ask(known=threads.sleep_soon):\n"
        "    known(); import os; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)\n"
        "threads.sleep_soon = ask\n"
        "from varscale.cli.main import main; main(['data', 'list', '--json'])"
    )
    kept = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == f"{found} False"
