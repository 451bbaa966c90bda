"""Jobs on a Dask cluster: one that is there, or processes of this machine.

A job is idempotent: its run directory says how far it is. A worker that is lost costs what it did
since its last checkpoint, and the result is that of a serial run, bit for bit.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from varscale.paper.reproduce import Job
from varscale.paper.results import Arrays, Results, Row


def reproduce_on(
    jobs: list[Job], results: Results, runs: Path, *, workers: int, scheduler: str | None
) -> Iterator[Row]:
    """Run jobs side by side, storing each as it is done.

    Args:
        jobs: What to run.
        results: Where rows go.
        runs: Where run directories are; every worker must see the same folder.
        workers: Processes of this machine.
        scheduler: Address of a scheduler, `tcp://host:port`, to use instead.
    """
    try:
        from dask import distributed
    except ImportError as error:
        raise ValueError(
            f"Several jobs at once need the extra 'cluster' ({error}): "
            "pip install 'varscale[cluster]'."
        ) from error
    dask: Any = distributed  # it has no types
    with ExitStack() as stack:
        where: Any = scheduler
        if scheduler is None:
            where = stack.enter_context(
                dask.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    dashboard_address=":0",
                    memory_limit=0,
                )
            )
        try:
            client = stack.enter_context(dask.Client(where, timeout="10s"))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"There is no Dask scheduler at {scheduler}: {error}. Expected tcp://host:port."
            ) from error
        futures = {client.submit(_run, job, runs, pure=False, retries=2): job for job in jobs}
        for future in dask.as_completed(futures):
            row, arrays = future.result()
            results.add(row, arrays)
            yield row


def _run(job: Job, runs: Path) -> tuple[Row, Arrays]:
    return job.run(runs)
