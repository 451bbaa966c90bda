"""The head and the shot law, against plain loops and classes whose law is known."""

import numpy as np
import pytest
import torch
from conftest import random_episode

import varscale
from varscale import ScaledModel, backbones, hosts
from varscale.data.mixed import MixedTasks
from varscale.functional import shot_factor, temper
from varscale.learn import learn_scaler, optimizers
from varscale.model.head import Scale, log_probabilities
from varscale.scalers import DSVS, SVS, Fixed, Together
from varscale.scalers.posterior import gaussian


def test_factor_and_tempered_scores_in_plain_loops(generator):
    logits = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    count = torch.tensor([[1.0, 2.0, 7.0], [5.0, 5.0, 1.0]], dtype=torch.float64)
    got = temper(logits, shot_factor(count, 0.4).unsqueeze(-2))
    for t in range(2):
        for j in range(4):
            row = logits[t, j].tolist()
            for k in range(3):
                n = count[t, k].item()
                expected = n / (n + 0.4) * (row[k] - sum(row) / 3)
                assert got[t, j, k].item() == pytest.approx(expected, abs=1e-12)


def test_gradients(generator):
    logits = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    offset = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    count = torch.tensor([[1.0, 2.0, 5.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x, b: temper(x, shot_factor(count, b)), (logits, offset))


def test_equal_shots_scale_the_softmax_and_nothing_else(generator):
    logits = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    equal = temper(logits, torch.full((1, 3), 0.6, dtype=torch.float64))
    torch.testing.assert_close(equal.softmax(-1), (0.6 * logits).softmax(-1))


def test_two_classes_of_unequal_shots_are_not_biased(generator):
    """A query that is as near to one as to the other has even odds, whatever the shots."""
    p = temper(torch.tensor([[3.0, 3.0], [4.0, 2.0]]), torch.tensor([[0.2, 0.9]])).softmax(-1)
    assert p[0].tolist() == pytest.approx([0.5, 0.5])
    assert p[1, 0] > 0.5


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_metrics_that_agree_without_shots_agree_with_them(metric):
    """On unit vectors cosine and Euclidean logits differ by a constant, which must not matter."""

    def predict(metric):
        model = varscale.create(
            backbone="identity", backbone_options={"dim": 5}, metric=metric, scaler="fixed",
            scaler_options={"alpha": 8.0}, shot_offset=0.5,
        )  # fmt: skip
        return model(random_episode(shots=(1, 2, 6)))

    torch.testing.assert_close(predict(metric), predict("cosine"))


def scaled(scaler, **options):
    host = hosts.PrototypicalNetwork(backbones.Identity(5), metric="cosine")
    return ScaledModel(host, scaler, **options)


@pytest.mark.parametrize(
    "scaler", [SVS(), SVS(family="log-normal"), DSVS(5), Together()], ids=lambda s: repr(s)
)
def test_offset_is_learned_by_the_main_optimiser_once(scaler):
    model = scaled(scaler, shot_offset=0.5)
    steppers = optimizers(model, queries_per_task=4)
    groups = [p for o in steppers for g in o.param_groups for p in g["params"]]
    assert sorted(map(id, groups)) == sorted(map(id, model.parameters()))
    assert any(p is model.log_shot_offset for g in steppers[0].param_groups for p in g["params"])
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    steppers[0].step()  # Adam's first step is its learning rate
    assert model.log_shot_offset.item() == pytest.approx(np.log(0.5) - 1e-3, abs=1e-5)


def test_a_fixed_scale_learns_no_offset():
    model = scaled(Fixed(alpha=3.0), shot_offset=0.5)
    assert not list(model.parameters())
    assert model.shot_offset.item() == pytest.approx(0.5)
    assert "log_shot_offset" in model.state_dict()
    assert scaled(Fixed(alpha=3.0)).shot_offset is None


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("offset", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_offsets_are_refused(offset):
    with pytest.raises(ValueError, match="shot_offset > 0"):
        scaled(SVS(), shot_offset=offset)


@pytest.mark.parametrize("draws", [None, 3])
def test_the_head_is_prototypes_similarity_laws_and_softmax(draws, generator):
    """Against plain loops: class means, cosines, alpha, shots, softmax, mean over draws."""
    episode = random_episode(shots=(1, 2, 5), queries=2, dim=4)
    labels, offset = episode.support_labels, 0.6
    host = hosts.PrototypicalNetwork(backbones.Identity(4), metric="cosine")
    q = gaussian(torch.tensor([[2.0, 1.0, 3.0, 5.0]]).double(), torch.full((1, 4), 0.1).double())
    alphas = q.loc if draws is None else torch.rand(draws, 1, 4, generator=generator).double()
    got = log_probabilities(
        host,
        Scale(q, offset),
        episode.query,
        host.references(episode.support, labels, n_way=3),
        labels,
        n_way=3,
        draws=None if draws is None else alphas,
    )
    for j, query in enumerate(episode.query[0].tolist()):
        mean = [0.0] * 3
        for alpha in alphas.reshape(-1, 4).tolist():
            scores, counts = [], []
            for k in range(3):
                own = episode.support[0][labels[0] == k].tolist()
                centre = [sum(column) / len(own) for column in zip(*own, strict=True)]
                sizes = [sum(v * v for v in x) ** 0.5 for x in (query, centre)]
                terms = zip(alpha, query, centre, strict=True)
                scores.append(sum(a * x * c for a, x, c in terms) / sizes[0] / sizes[1])
                counts.append(len(own))
            middle = sum(scores) / 3
            logits = [n / (n + offset) * (s - middle) for n, s in zip(counts, scores, strict=True)]
            total = sum(np.exp(logits))
            mean = [m + np.exp(x) / total / (draws or 1) for m, x in zip(mean, logits, strict=True)]
        assert got[0, j].exp().tolist() == pytest.approx(mean, rel=1e-9)


@pytest.mark.slow
def test_the_law_of_gaussian_classes_is_found():
    """Items N(m, s²) of classes that lie apart: scale (1/s²) n / (n + 1) of the distance (M17)."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(400), 30)
    items = 4.0 * draw.normal(size=(400, 2))[labels] + 0.8 * draw.normal(size=(len(labels), 2))
    options = {"family": "log-normal", "init": 3.0, "kl_weight": 1e-4}
    model = varscale.create(
        backbone="identity",
        backbone_options={"dim": 2},
        metric="euclidean",
        host_options={"normalize": "none"},
        scaler="svs",
        scaler_options=options,
        shot_offset=0.2,
    )
    table = torch.from_numpy(items).float()
    learn_scaler(model, table, MixedTasks(labels, ways=(5,)), steps=400, tasks_per_step=64)
    assert model.scaler(torch.zeros(2)).mean.item() == pytest.approx(1 / 0.8**2, rel=0.1)
    assert model.shot_offset.item() == pytest.approx(1.0, rel=0.15)
