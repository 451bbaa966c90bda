"""Embed items: what was embedded before comes from the cache."""

import numpy as np

from varscale.items.cache import Cache
from varscale.items.embedders.base import Embedder
from varscale.items.source import Batch


def embed_batch(
    batch: Batch, embedder: Embedder | None, cache: Cache | None = None
) -> tuple[np.ndarray, dict[int, str]]:
    """Embed a batch of items, and say which cannot be read, and why.

    Items without an embedder are embeddings already. The rows of unreadable items are zero.

    Returns:
        Embeddings in float32, one row each; the reasons, by place in the batch.
    """
    if embedder is None:
        rows = np.asarray(batch.contents, dtype=np.float32)
        batch.check(rows)
        return rows, {}
    keys = batch.keys
    known = cache.get(list(dict.fromkeys(keys))) if cache else {}
    bad, new = dict(batch.bad), {}
    for i, key in enumerate(keys):
        if key not in known and key not in new and i not in bad:
            try:
                new[key] = i, embedder.prepare(batch.contents[i], batch.where(batch.start + i))
            except ValueError as error:
                bad[i] = str(error)
    waiting = list(new.items())
    for start in range(0, len(waiting), embedder.batch):
        some = waiting[start : start + embedder.batch]
        rows = _embed(embedder, [item for _, (_, item) in some])
        batch.check(rows, [i for _, (i, _) in some], embedder.spec)
        made = dict(zip([key for key, _ in some], rows, strict=True))
        if cache:
            cache.put(made)
        known |= made
    width = len(next(iter(known.values()))) if known else 0
    empty = np.zeros(width, dtype=np.float32)
    return np.stack([known.get(key, empty) for key in keys]), bad


def _embed(embedder: Embedder, items: list[object]) -> np.ndarray:
    try:
        rows = embedder.embed(items)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"The embedder {embedder.spec} failed: {why[:300]}.") from error
    if rows.ndim != 2 or len(rows) != len(items) or not np.issubdtype(rows.dtype, np.number):
        raise ValueError(
            f"Expected one row of numbers for each of {len(items)} items of the embedder "
            f"{embedder.spec}, got {rows.dtype} of shape {rows.shape}."
        )
    return np.asarray(rows, dtype=np.float32)
