"""Time of two processes with one thread each, compared with one process with two threads."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

from varscale.bench.synthetic import noise_dataset
from varscale.runs.logbook import read_metrics

STEPS, WARM_UP = 12, 3


def ddp_2_over_1(folder: Path, repeats: int) -> dict[str, float]:
    """Measure `varscale train` with two processes over one, two tasks per step, 84x84."""
    noise_dataset(folder / "data", (84, 84, 3), classes=64, per_class=40, name="shared")
    ratios = []
    for i in range(max(1, repeats // 5)):
        one = _seconds(folder, f"one{i}", devices=1, threads=2)
        ratios.append(one / _seconds(folder, f"two{i}", devices=2, threads=1))
    return {"ddp_2_over_1": median(ratios)}


def _seconds(folder: Path, name: str, *, devices: int, threads: int) -> float:
    """Median seconds of a step of a real run."""
    out = folder / name
    words = (
        "--dataset shared --scaler svs --metric cosine --n_shot 5 --tasks_per_step 2 --val_every 0 "
        f"--steps {STEPS} --checkpoint_every 0 --accelerator cpu --devices {devices}"
    )
    done = subprocess.run(
        [sys.executable, "-m", "varscale", "train", *words.split(), "--out", str(out)],
        env={**os.environ, "VARSCALE_HOME": str(folder), "OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ValueError(f"The run with {devices} processes failed: {done.stderr.strip()}")
    seconds: list[float] = [row["seconds"] for row in read_metrics(out)[WARM_UP:]]
    return median(b - a for a, b in pairwise(seconds))
