"""Jobs on a Dask cluster: one that is there, or processes of this machine.

A job is idempotent: its run directory says how far it is. A worker that is lost costs what it did
since its last checkpoint, and the result is that of a serial run, bit for bit.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from varscale.paper.reproduce import Job
from varscale.paper.results import Results, Row


def reproduce_on(
    jobs: list[Job], results: Results, runs: Path, *, workers: int, scheduler: str | None
) -> Iterator[Row]:
    """Run jobs side by side, storing each as it is done.

    They run in `workers` processes of this machine; or on those of a scheduler, `tcp://host:port`,
    all of which must see the folder `runs`.
    """
    try:
        from dask import distributed
    except ImportError as error:
        raise ValueError(
            f"Several jobs at once need the extra 'cluster' ({error}): "
            "pip install 'varscale[cluster]'."
        ) from error
    dask: Any = distributed  # it has no types
    where: dict[str, Any] = {"address": scheduler}
    if scheduler is None:
        where = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": 0}
        where |= {"dashboard_address": ":0"}
    try:
        client = dask.Client(**where, timeout="10s")
    except (OSError, ValueError) as error:
        if scheduler is None:
            raise
        raise ValueError(
            f"There is no Dask scheduler at {scheduler}: {error}. Expected tcp://host:port."
        ) from error
    with client:
        futures = [client.submit(Job.run, job, runs, pure=False, retries=2) for job in jobs]
        for future in dask.as_completed(futures):
            row, arrays = future.result()
            results.add(row, arrays)
            yield row
