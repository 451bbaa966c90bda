"""Time of drawing episodes, compared with numpy's own draws."""

import random

import numpy as np

from varscale.bench.timing import interleave
from varscale.data import EpisodeSampler

N_CLASSES, PER_CLASS, N_WAY, N_ITEMS = 64, 600, 5, 16
LABELS = np.repeat(np.arange(N_CLASSES), PER_CLASS)
BATCH = 200


def sampler_over_numpy(repeats: int) -> dict[str, float]:
    """Measure drawing 5-way 1-shot 15-query episodes of 64 classes x 600 items over numpy."""
    sampler = EpisodeSampler(LABELS, n_way=N_WAY, n_shot=1, n_query=N_ITEMS - 1)
    place, rng = random.Random(0), np.random.default_rng(0)

    def one() -> None:
        sampler[place.getrandbits(40)]  # not next to the last one

    def batch() -> None:
        sampler.batch(place.getrandbits(40), BATCH)

    # Many short turns, so that most of them run undisturbed.
    ones = interleave(one, lambda: choose(rng), repeats=10 * repeats, calls=20)
    batches = interleave(batch, lambda: choose_many(rng, BATCH), repeats=10 * repeats, calls=2)
    return {
        "sampler_one_over_numpy": ones[0] / ones[1],
        "sampler_batch_over_numpy": batches[0] / batches[1],
    }


def episodes_per_second(repeats: int) -> dict[str, float]:
    """Measure 5-way 5-shot 15-query episodes per second, of the same items."""
    sampler = EpisodeSampler(LABELS, n_way=5, n_shot=5, n_query=15)
    (seconds,) = interleave(lambda: sampler.batch(0, 5000), repeats=min(repeats, 10))
    return {"episodes_per_s": 5000 / seconds}


def choose(rng: np.random.Generator) -> list[np.ndarray]:
    """Draw the items of one episode, as numbers within each class."""
    classes = rng.choice(N_CLASSES, N_WAY, replace=False)
    return [rng.choice(PER_CLASS, N_ITEMS, replace=False) for _ in classes]


def choose_many(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw the rows of many episodes; `rng.choice` draws only one sample without replacement."""

    def sample(size: int, n: int, samples: int) -> np.ndarray:
        draws = np.stack([rng.integers(size - i, size=samples) for i in range(n)])
        for i in range(n - 2, -1, -1):
            later = draws[i + 1 :]
            later += later >= draws[i]
        return np.asarray(draws.T)

    classes = sample(N_CLASSES, N_WAY, count).reshape(-1, 1)
    rows = classes * PER_CLASS + sample(PER_CLASS, N_ITEMS, count * N_WAY)
    return np.asarray(rows.reshape(count, -1))
