"""The tasks of a step: the sampler's own, whatever the block and the number of processes."""

import pytest
import torch

from varscale.core.processes import Processes
from varscale.data import Dataset, EpisodeSampler
from varscale.data.feed import Feed


@pytest.fixture
def split(tiny_images):
    return Dataset.open(tiny_images)["train"]


@pytest.mark.parametrize("block", [1, 3, 64])
def test_every_step_gets_the_tasks_of_its_number(split, block):
    sampler = EpisodeSampler(split.labels, n_way=3, n_shot=1, n_query=2)
    feed = Feed(split, sampler, tasks_per_step=2, block=block)
    for step in (0, 1, 5, 2, 64):  # in any order
        index, episode = feed(step)
        expected = split.episode(sampler.batch(2 * step, 2))
        assert index == 2 * step
        assert torch.equal(episode.support, expected.support)
        assert torch.equal(episode.query, expected.query)
        assert torch.equal(episode.query_labels, expected.query_labels)


def test_processes_take_equal_parts(split):
    sampler = EpisodeSampler(split.labels, n_way=3, n_shot=1, n_query=2)
    whole = Feed(split, sampler, tasks_per_step=4)(7)[1]
    parts = [Feed(split, sampler, 4, Processes(rank, 2))(7) for rank in range(2)]
    assert [index for index, _ in parts] == [28, 30]
    assert torch.equal(torch.cat([part.support for _, part in parts]), whole.support)


def test_the_first_items_of_each_class(split):
    part = split.first(3)
    assert len(part) == 7 * 3
    for label in set(split.labels.tolist()):
        assert part.rows[part.labels == label].tolist() == (
            split.rows[split.labels == label][:3].tolist()
        )
    assert len(split.first(1000)) == len(split)
