"""Scales fitted to similarities."""

import math

import numpy as np
import pytest
import torch

from varscale.learn.quadrature import Similarities, fit_scale, similarities_nll
from varscale.model.head import Scale
from varscale.scalers.posterior import gaussian


def test_what_is_believed_of_the_scale_before_anything_is_seen():
    nothing = Similarities(
        1, torch.zeros(1, 4, 2), torch.zeros(1, 4).long(), torch.zeros(1, 4).long()
    )
    mean = fit_scale([nothing], effective_tasks=1, init=20.0).q.mean.item()
    assert mean == pytest.approx(20, rel=0.01)


def test_a_factor_is_taken_out_of_the_scale(generator):
    similarity = torch.rand(50, 8, 4, generator=generator)
    labels = torch.randint(4, (50, 8), generator=generator)
    similarity.scatter_add_(-1, labels.unsqueeze(-1), torch.full((50, 8, 1), 0.3))
    tasks = [Similarities(5, similarity, labels, labels)]
    plain, halved = (
        fit_scale(tasks, effective_tasks=5000, init=20.0, origin=origin) for origin in (1.0, 0.5)
    )
    ours, theirs = (s.q.mean.item() * 5 / (5 + s.shot_offset.item()) for s in (halved, plain))
    assert ours == pytest.approx(2 * theirs, rel=1e-3)


def test_losses_of_base_classes_in_a_plain_loop(generator):
    q = gaussian(torch.tensor([3.0]), torch.tensor([0.1]))
    found: dict[int, list[float]] = {}
    tasks = []
    for shot, way in ((1, 2), (4, 3)):
        similarity = torch.rand(2, 5, way, generator=generator)
        labels = torch.randint(way, (2, 5), generator=generator)
        names = torch.randint(6, (2, 5), generator=generator)
        tasks.append(Similarities(shot, similarity, labels, names))
        for t in range(2):
            for j in range(5):
                scores = [0.7 * 3.0 * shot / (shot + 0.5) * s.item() for s in similarity[t, j]]
                loss = math.log(sum(map(math.exp, scores))) - scores[labels[t, j]]
                found.setdefault(int(names[t, j]), []).append(loss)
    expected = [np.mean(found[c]) for c in sorted(found)]
    assert similarities_nll(tasks, Scale(q, 0.5, 0.7)) == pytest.approx(expected, rel=1e-5)
