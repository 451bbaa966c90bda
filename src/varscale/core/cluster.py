"""A Dask cluster: one that is there, or processes of this machine."""

from typing import Any

from varscale.core.extras import needs


def connect(scheduler: str | None, workers: int = 1) -> Any:
    """Connect to a scheduler, `tcp://host:port`, or start `workers` processes of this machine."""
    with needs("cluster", "Work in several processes"):
        from dask import distributed
    dask: Any = distributed  # it has no types
    where: dict[str, Any] = {"address": scheduler}
    if scheduler is None:
        where = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": 0}
        where |= {"dashboard_address": ":0"}
    try:
        return dask.Client(**where, timeout="10s")
    except (OSError, ValueError) as error:
        if scheduler is None:
            raise
        raise ValueError(
            f"There is no Dask scheduler at {scheduler}: {error}. Expected tcp://host:port."
        ) from error
