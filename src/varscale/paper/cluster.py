"""Jobs on a Dask cluster: one that is there, or processes of this machine.

A job is idempotent: its run directory says how far it is. A worker that is lost costs what it did
since its last checkpoint, and the result is that of a serial run, bit for bit.
"""

from collections.abc import Iterator
from pathlib import Path

from varscale.core.cluster import connect
from varscale.paper.reproduce import Job
from varscale.paper.results import Results, Row


def reproduce_on(
    jobs: list[Job], results: Results, runs: Path, *, workers: int, scheduler: str | None
) -> Iterator[Row]:
    """Run jobs side by side, storing each as it is done.

    They run in `workers` processes of this machine; or on those of a scheduler, `tcp://host:port`,
    all of which must see the folder `runs`.
    """
    with connect(scheduler, workers) as client:
        from dask.distributed import as_completed

        futures = [client.submit(Job.run, job, runs, pure=False, retries=2) for job in jobs]
        for future in as_completed(futures):  # type: ignore[no-untyped-call]
            row, arrays = future.result()
            results.add(row, arrays)
            yield row
