"""Scales and laws fitted to similarities."""

import math

import pytest
import torch

from varscale.learn.quadrature import Law, Similarities, fit_law


def drawn_from_a_law(generator, *, mean=12.0, offset=0.6, power=0.4, tasks=1500):
    """Queries whose classes follow a known law, at three numbers of shots and known factors."""
    parts = []
    for shot in (1, 3, 10):
        similarity = torch.rand(tasks, 10, 4, generator=generator, dtype=torch.float64)
        top = similarity.amax(-1, keepdim=True)
        factor = 0.5 + torch.rand(tasks, generator=generator, dtype=torch.float64)
        grown = mean * shot / (shot + offset) * factor[:, None, None]
        # the mean of the largest of four uniform numbers is 0.8
        p = (grown * (top / 0.8) ** -power * similarity).softmax(-1)
        labels = torch.multinomial(p.view(-1, 4), 1, generator=generator).view(tasks, 10)
        parts.append(Similarities(shot, similarity, labels, labels, factor))
    return parts


def test_what_is_believed_of_the_scale_before_anything_is_seen():
    none = torch.zeros(1, 4).long()
    nothing = Similarities(1, torch.zeros(1, 4, 2), none, none, torch.ones(1))
    law = fit_law([nothing], effective_tasks=1, init=20.0)
    assert law.mean == pytest.approx(20, rel=0.01)
    assert law.query_power == pytest.approx(0, abs=1e-3)


def test_a_known_law_is_found(generator):
    law = fit_law(drawn_from_a_law(generator), effective_tasks=1e5, init=20.0)
    assert law.mean == pytest.approx(12, rel=0.05)
    assert law.shot_offset == pytest.approx(0.6, rel=0.1)
    assert law.query_power == pytest.approx(0.4, abs=0.1)
    assert law.top == pytest.approx(0.8, abs=0.01)
    assert 0 < law.std < 0.5


@pytest.mark.parametrize("init", [1.0, 300.0])
def test_a_search_that_stops_too_early_goes_on(generator, init):
    tasks = drawn_from_a_law(generator, tasks=20)
    near, far = (fit_law(tasks, effective_tasks=10, init=start) for start in (20.0, init))
    for name, value in vars(near).items():
        assert getattr(far, name) == pytest.approx(value, rel=1e-3, abs=1e-3), name


def test_a_factor_is_taken_out_of_the_scale(generator):
    similarity = torch.rand(50, 8, 4, generator=generator)
    labels = torch.randint(4, (50, 8), generator=generator)
    similarity.scatter_add_(-1, labels.unsqueeze(-1), torch.full((50, 8, 1), 0.3))
    plain, halved = (
        fit_law(
            [Similarities(5, similarity, labels, labels, torch.full((50,), factor))],
            effective_tasks=5000,
            init=20.0,
        )
        for factor in (1.0, 0.5)
    )
    ours, theirs = (law.mean * 5 / (5 + law.shot_offset) for law in (halved, plain))
    assert ours == pytest.approx(2 * theirs, rel=1e-3)
    assert halved.query_power == pytest.approx(plain.query_power, abs=1e-3)


def test_few_tasks_leave_more_of_the_prior(generator):
    tasks = drawn_from_a_law(generator, tasks=20, mean=4.0)
    few, many = (fit_law(tasks, effective_tasks=n, init=20.0) for n in (0.5, 500.0))
    assert few.std / few.mean > 2 * many.std / many.mean
    assert abs(math.log(few.mean / 20)) < abs(math.log(many.mean / 20))
    assert abs(few.query_power) < abs(many.query_power)


def test_similarities_to_the_own_class_and_to_the_nearest():
    similarity = torch.tensor([[[0.1, 0.7], [0.5, 0.2]]])
    labels = torch.tensor([[0, 0]])
    tasks = Similarities(1, similarity, labels, labels, torch.ones(1))
    assert tasks.own.tolist() == [pytest.approx([0.1, 0.5])]
    assert tasks.top.flatten().tolist() == pytest.approx([0.7, 0.5])


def test_the_likelihood_of_a_law_in_a_plain_loop(generator):
    law = Law(mean=7.0, std=0.1, shot_offset=0.6, query_power=0.4, top=0.8)
    tasks, found = drawn_from_a_law(generator, tasks=3), []
    for part in tasks:
        for t in range(3):
            grown = 7.0 * part.shot / (part.shot + 0.6) * part.factor[t].item()
            for row, label in zip(
                part.similarity[t].tolist(), part.labels[t].tolist(), strict=True
            ):
                scores = [grown * (max(row) / 0.8) ** -0.4 * s for s in row]
                found.append(math.log(sum(map(math.exp, scores))) - scores[label])
    assert law.nll(tasks) == pytest.approx(sum(found) / 9)  # queries of a task are added up


def test_some_of_the_tasks(generator):
    whole = drawn_from_a_law(generator, tasks=5)[1]
    some = whole.every(2)
    assert some.shot == whole.shot
    for name in ("similarity", "labels", "classes", "factor"):
        assert torch.equal(getattr(some, name), getattr(whole, name)[[0, 2, 4]])
