"""A job spread over a Dask cluster, with the answers of a serial run in the same order."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from varscale.core.cluster import connect
from varscale.items.answers import Part
from varscale.items.job import Job, answer_range

BATCHES = 16
"""Batches of a partition."""
AHEAD = 4
"""Partitions to hand out for each worker: what waits for its turn is held in memory."""


def answer_spread(job: Job, scheduler: str, size: int, start: int, total: int) -> Iterator[Part]:
    """Answer the items of a job from `start` on, in order, on the workers of a scheduler.

    All workers must see the files of the job under the same paths. A partition that is lost with
    its worker is answered again by another.
    """
    job = replace(job, model=_absolute(job.model), source=_absolute(job.source))
    if job.embedder is not None:
        name, _, rest = job.embedder.partition(":")
        job = replace(job, embedder=f"{name}:{_absolute(rest)}" if rest else name)
    step = size * BATCHES
    with connect(scheduler) as client:
        room = AHEAD * max(1, len(client.scheduler_info()["workers"]))
        starts = deque(range(start, total, step))
        waiting: deque[object] = deque()
        while starts or waiting:
            while starts and len(waiting) < room:
                begin = starts.popleft()
                stop = min(begin + step, total)
                waiting.append(client.submit(answer_range, job, begin, stop, pure=False, retries=2))
            yield from waiting.popleft().result()  # type: ignore[attr-defined]


def _absolute(path: str) -> str:
    """A path as workers in other folders find it."""
    return str(Path(path).resolve()) if Path(path).exists() else path
