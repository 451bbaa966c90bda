import hashlib
import itertools
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from varscale.core import random
from varscale.data import EpisodeSampler

LABELS = np.repeat(np.arange(64), 600)


def digest(*batches):
    """Hash of episodes, in order, however they were cut."""
    sha = hashlib.sha256()
    for name in ("support", "support_labels", "query", "query_labels", "classes"):
        sha.update(torch.cat([getattr(b, name) for b in batches]).numpy().tobytes())
    return sha.hexdigest()


def worker(piece):
    return EpisodeSampler(LABELS, 5, 5, 15, seed=7, stream="test").batch(*piece)


@pytest.mark.usefixtures("as_user")  # two thousand single calls
@pytest.mark.parametrize("queries", ["balanced", "random"])
def test_episodes_do_not_depend_on_how_they_are_cut(queries):
    sampler = EpisodeSampler(LABELS, 5, 5, 15, seed=7, stream="test", queries=queries)
    n = 10_000 if queries == "balanced" else 500
    whole = digest(sampler.batch(0, n))
    edges = np.linspace(0, n, 8).astype(int).tolist()
    assert digest(*(sampler.batch(a, b - a) for a, b in itertools.pairwise(edges))) == whole
    drawn, some = sampler.batch(0, n), range(0, n, 5)
    alone = [sampler[i] for i in some]
    for field, values in vars(drawn).items():
        assert torch.equal(torch.cat([getattr(one, field) for one in alone]), values[some])
    again = EpisodeSampler(LABELS, 5, 5, 15, seed=7, stream="test", queries=queries)
    assert digest(again.batch(0, n)) == whole
    assert digest(sampler.batch(1, n)) != whole


@pytest.mark.parametrize("processes", [2, 4])
def test_episodes_do_not_depend_on_the_number_of_processes(processes, tmp_path):
    code = """
import sys, numpy as np
from varscale.data import EpisodeSampler
start, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sampler = EpisodeSampler(np.repeat(np.arange(64), 600), 5, 5, 15, seed=7, stream="test")
np.save(path, sampler.batch(start, count).query.numpy())
"""
    size = 10_000 // processes
    jobs = []
    for p in range(processes):
        command = [sys.executable, "-c", code, str(p * size), str(size), tmp_path / f"{p}.npy"]
        jobs.append(subprocess.Popen(command))
    assert [job.wait() for job in jobs] == [0] * processes
    parts = [np.load(tmp_path / f"{p}.npy") for p in range(processes)]
    assert np.array_equal(np.concatenate(parts), worker((0, 10_000)).query.numpy())


def test_the_episodes_of_a_seed_are_these_for_ever():
    """A change here is a change of every published number: it needs a new major version."""
    assert digest(worker((0, 1000))) == (
        "63e88e448292fd3bb31240c6c5637f3acc3610f96b2e98e56135f260c6ed9b71"
    )


@pytest.mark.usefixtures("as_user")  # a thousand single calls
@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        ("balanced", "fdf67e618a4e91db21be422699435642e11aaa67e39b654005641ab0ce2c01c4"),
        ("random", "7acf2b212eda33c6f49e4bffe69324cc402fc6ca3e032667eca62aad90c313d3"),
    ],
)
def test_episodes_of_unequal_classes_and_shots_are_these_for_ever(queries, expected):
    labels = np.repeat(np.arange(0, 60, 2), np.arange(20, 50))
    sampler = EpisodeSampler(labels, 4, [1, 5, 2, 3], 9, seed=-3, stream="val", queries=queries)
    start = 2**32 - 500
    assert digest(sampler.batch(start, 1000)) == expected
    assert digest(*(sampler[start + i] for i in range(1000))) == expected


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("queries", ["balanced", "random"])
def test_one_call_of_philox_draws_a_batch_and_none_an_episode(queries, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return philox(*arguments)

    philox = random.philox
    monkeypatch.setattr(random, "philox", counted)
    sampler = EpisodeSampler(LABELS, 5, 1, 15, queries=queries)
    sampler[3]
    assert not calls
    sampler.batch(3, 200)
    assert len(calls) == 1


@pytest.mark.usefixtures("as_user")
def test_threads_and_copies_draw_the_same_episodes():
    sampler = EpisodeSampler(LABELS, 5, 1, 15)
    whole = digest(sampler.batch(0, 200))
    with ThreadPoolExecutor(4) as pool:
        assert digest(*pool.map(sampler.__getitem__, range(200))) == whole
        batches = pool.map(sampler.batch, [0] * 8, [200] * 8)
        assert {digest(batch) for batch in batches} == {whole}
    copied = pickle.loads(pickle.dumps(sampler))
    assert digest(*(copied[i] for i in range(200))) == whole


@pytest.mark.parametrize("queries", ["balanced", "random"])
@pytest.mark.parametrize("count", [1, 20])
def test_who_writes_into_an_episode_changes_no_other(queries, count):
    sampler = EpisodeSampler(LABELS, 5, 2, 5, queries=queries)
    before = digest(sampler.batch(0, count))
    for rows in vars(sampler.batch(0, count)).values():
        assert rows.is_contiguous()
        rows.fill_(-1)
    assert digest(sampler.batch(0, count)) == before


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(4, 9), min_size=3, max_size=8),
    shots=st.lists(st.integers(1, 2), min_size=3, max_size=3),
    n_query=st.integers(0, 2),
    queries=st.sampled_from(["balanced", "random"]),
    seed=st.integers(-5, 2**40),
    shuffle=st.randoms(use_true_random=False),
)
def test_nothing_repeats_and_labels_are_true(sizes, shots, n_query, queries, seed, shuffle):
    labels = [10 + 3 * c for c, n in enumerate(sizes) for _ in range(n)]
    shuffle.shuffle(labels)
    labels = np.array(labels)
    sampler = EpisodeSampler(labels, 3, shots, n_query, seed=seed, queries=queries)
    batch = sampler.batch(0, 20)
    for t in range(20):
        classes = batch.classes[t].numpy()
        assert len(set(classes)) == 3
        rows = torch.cat([batch.support[t], batch.query[t]]).numpy()
        task_labels = torch.cat([batch.support_labels[t], batch.query_labels[t]]).numpy()
        assert len(set(rows)) == len(rows)
        assert (labels[rows] == classes[task_labels]).all()
        assert np.bincount(batch.support_labels[t], minlength=3).tolist() == shots
        if queries == "balanced":
            assert np.bincount(batch.query_labels[t], minlength=3).tolist() == [n_query] * 3
        else:
            assert batch.query.shape[1] == n_query


def chi_square(counts, expected):
    counts = np.asarray(counts)
    return ((counts - expected) ** 2 / expected).sum() / (counts.size - 1)


def test_classes_supports_and_queries_are_uniform():
    sampler = EpisodeSampler(np.repeat(np.arange(8), 10), 3, 2, 4, seed=1)
    batch = sampler.batch(0, 20_000)
    # Reduced chi-squares: 1 in the mean; 0.001 quantiles lie near 1 +- 3.3 sqrt(2 / df).
    assert chi_square(np.bincount(batch.classes.flatten(), minlength=8), 7500) < 3.5
    by_place = [np.bincount(batch.classes[:, k], minlength=8) for k in range(3)]
    assert chi_square(by_place, 2500) < 2.2
    assert chi_square(np.bincount(batch.support.flatten(), minlength=80), 1500) < 1.6
    assert chi_square(np.bincount(batch.query.flatten(), minlength=80), 3000) < 1.6


def test_ordered_samples_of_a_class_are_uniform():
    """All 60 ordered triples of 5 items, in which order and neighbours matter."""
    sampler = EpisodeSampler(np.repeat(np.arange(2), 5), 2, 1, 2, seed=2)
    batch = sampler.batch(0, 30_000)
    rows = torch.stack([batch.support[:, 0], batch.query[:, 0], batch.query[:, 1]], dim=1) % 5
    codes = (rows * torch.tensor([25, 5, 1])).sum(1)
    counts = np.bincount(codes, minlength=125)
    assert (counts > 0).sum() == 60
    assert chi_square(counts[counts > 0], 500) < 1.65


def test_random_queries_follow_the_pool():
    labels = np.repeat([0, 1, 2], [4, 6, 12])
    sampler = EpisodeSampler(labels, 3, 2, 5, queries="random")
    batch = sampler.batch(0, 8000)
    expected = 8000 * 5 * np.array([2, 4, 10]) / 16  # what the supports leave of each class
    counts = np.bincount(torch.gather(batch.classes, 1, batch.query_labels).flatten(), minlength=3)
    assert chi_square(counts, expected) < 6
    per_task = {tuple(np.bincount(labels, minlength=3)) for labels in batch.query_labels}
    assert len(per_task) > 5  # not balanced: the numbers of each class vary from task to task


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_way": 1}, "at least 2 classes per task"),
        ({"n_way": 5}, "at least 5 classes for 5-way tasks, got 3. Lower n_way to 3"),
        ({"n_shot": 0}, "n_shot >= 1"),
        ({"n_shot": [1, 2]}, "each of 3 classes, got"),
        ({"n_query": -1}, "n_query >= 0"),
        (
            {"n_shot": 5, "n_query": 15},
            r"needs 20 items per class; class 1 has 12. Lower n_query to 7",
        ),
        ({"n_shot": 12, "n_query": 1}, "Lower n_shot and n_query, or leave"),
        ({"n_shot": 13, "queries": "random"}, "needs 13 items per class; class 1 has 12"),
        ({"n_shot": 1, "n_query": 50, "queries": "random"}, "Lower n_query to 43"),
        ({"labels": [[0, 1]]}, "one integer label per row"),
        ({"labels": [0.5, 1.0]}, "one integer label per row, got float64"),
    ],
)
def test_impossible_episodes_are_refused_at_once(arguments, message):
    arguments = {"labels": np.repeat([0, 1, 2], [14, 12, 20]), "n_way": 3, **arguments}
    with pytest.raises(ValueError, match=message):
        EpisodeSampler(**arguments)


@pytest.mark.usefixtures("as_user")
def test_unknown_kind_of_queries():
    with pytest.raises(ValueError, match="Unknown queries 'rnd'"):
        EpisodeSampler([0, 1], 2, 1, 0, queries="rnd")


def test_an_empty_batch_is_fine():
    assert EpisodeSampler([0, 0, 1, 1], 2, 1, 1).batch(5, 0).query.shape == (0, 2)
