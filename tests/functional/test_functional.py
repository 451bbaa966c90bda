import oracle
import pytest
import torch
from conftest import random_episode
from torch.autograd import gradcheck

from varscale import functional as vf
from varscale.backbones import Identity
from varscale.hosts import PrototypicalNetwork

SCALES = {
    "number": 2.5,
    "shared scalar": torch.tensor([2.5]),
    "shared vector": torch.tensor([0.5, 2.0, 3.0, 1.0, 4.0]),
    "scalar per task": torch.tensor([[0.5], [2.5]]),
    "vector per task": torch.tensor([[0.5, 2.0, 3.0, 1.0, 4.0], [1.0, 0.1, 2.0, 3.0, 0.7]]),
}
LOGITS = ["euclidean_logits", "dot_logits", "cosine_logits", "norm_logits", "squared_euclidean"]


def tasks(n=2):
    """Queries and references of n tasks, with supports and their labels."""
    episode = random_episode(tasks=n)
    centres = vf.prototypes(episode.support, episode.support_labels, 3)
    return episode, episode.query, centres


def alpha_of_task(alpha, task):
    if isinstance(alpha, float):
        return [alpha]
    return (alpha[task] if alpha.ndim == 2 else alpha).double().tolist()


@pytest.mark.parametrize("name", LOGITS)
@pytest.mark.parametrize("scale", SCALES)
def test_scaled_metric_equals_oracle(name, scale):
    _, query, centres = tasks()
    alpha = SCALES[scale]
    ours = getattr(vf, name)(query, centres, alpha.double() if scale != "number" else alpha)
    for task in range(2):
        expected = getattr(oracle, name)(
            query[task].tolist(), centres[task].tolist(), alpha_of_task(alpha, task)
        )
        expected = torch.tensor(expected, dtype=torch.float64)
        if name == "euclidean_logits":  # equal up to a constant of each query
            expected, got = expected.log_softmax(-1), ours[task].log_softmax(-1)
        else:
            got = ours[task]
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kappa", [0.5, 1.0])
def test_euclidean_logits_differ_from_the_distance_by_a_constant_of_each_query(kappa):
    _, query, centres = tasks()
    alpha = SCALES["vector per task"].double()
    whole = -kappa * vf.squared_euclidean(query, centres, alpha)
    constant = vf.euclidean_logits(query, centres, alpha, kappa=kappa) - whole
    torch.testing.assert_close(constant, constant[..., :1].expand_as(constant), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOGITS)
@pytest.mark.parametrize("scale", [s for s in SCALES if s != "number"])
def test_scaled_metric_passes_gradcheck(name, scale):
    _, query, centres = tasks()
    inputs = (query, centres, SCALES[scale].double())
    assert gradcheck(getattr(vf, name), [x.clone().requires_grad_() for x in inputs])


def test_prototypes_equal_oracle_and_pass_gradcheck():
    episode, _, centres = tasks(n=3)
    for task in range(3):
        expected = oracle.prototypes(
            episode.support[task].tolist(), episode.support_labels[task].tolist(), 3
        )
        torch.testing.assert_close(centres[task], torch.tensor(expected, dtype=torch.float64))
    assert gradcheck(
        lambda x: vf.prototypes(x, episode.support_labels, 3), episode.support.requires_grad_()
    )


def test_prototypes_take_any_number_of_task_axes():
    episode = random_episode(tasks=4)
    flat = vf.prototypes(episode.support, episode.support_labels, 3)
    grid = vf.prototypes(
        episode.support.unflatten(0, (2, 2)), episode.support_labels.unflatten(0, (2, 2)), 3
    )
    one = vf.prototypes(episode.support[0], episode.support_labels[0], 3)
    torch.testing.assert_close(grid.flatten(0, 1), flat)
    torch.testing.assert_close(one, flat[0])


def test_prototypes_of_thousands_of_classes():
    labels = torch.arange(5000).repeat(2)
    support = torch.arange(10_000.0).unsqueeze(-1)
    centres = vf.prototypes(support, labels, 5000)
    assert torch.equal(centres.squeeze(-1), torch.arange(5000.0) + 2500)


def test_normalize_equals_oracle_and_passes_gradcheck():
    x = random_episode().support[0]
    expected = torch.tensor([oracle.normalize(row) for row in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(vf.normalize(x), expected)
    assert gradcheck(vf.normalize, x.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOGITS)
def test_zero_embeddings_give_finite_values_and_gradients(name, dtype):
    query = torch.zeros(2, 5, dtype=dtype).requires_grad_()
    centres = torch.zeros(3, 5, dtype=dtype).requires_grad_()
    alpha = torch.full((5,), 100.0).requires_grad_()
    logits = getattr(vf, name)(query, centres, alpha)
    vf.query_nll(logits, torch.tensor([0, 2])).backward()
    for x in (logits, query.grad, centres.grad, alpha.grad):
        assert x.isfinite().all()


def test_gradient_of_a_zero_vector_is_zero():
    x = torch.zeros(1, 3, requires_grad=True)
    vf.normalize(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros(1, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    episode = random_episode(dtype=dtype)
    centres = vf.prototypes(episode.support, episode.support_labels, 3)
    logits = vf.cosine_logits(episode.query, centres, torch.tensor([100.0], dtype=dtype))
    assert centres.dtype == logits.dtype == torch.float32
    exact = vf.cosine_logits(
        episode.query.double(),
        vf.prototypes(episode.support.double(), episode.support_labels, 3),
        100.0,
    )
    torch.testing.assert_close(logits.double(), exact, rtol=1e-4, atol=1e-4)


def test_task_prototype_with_and_without_queries():
    episode = random_episode(tasks=2)
    both = vf.task_prototype(episode.support, episode.query)
    torch.testing.assert_close(both[1], torch.cat([episode.support[1], episode.query[1]]).mean(0))
    alone = vf.task_prototype(episode.support, None)
    torch.testing.assert_close(alone[1], episode.support[1].mean(0))


def test_attention_equals_oracle_and_passes_gradcheck(generator):
    similarity = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    labels = torch.tensor([[0, 0, 1, 2, 2, 2], [2, 1, 0, 1, 0, 1]])
    ours = vf.attention_logits(similarity, labels, 3).softmax(-1)
    for task in range(2):
        expected = oracle.attention(similarity[task].tolist(), labels[task].tolist(), 3)
        torch.testing.assert_close(ours[task], torch.tensor(expected, dtype=torch.float64))
    assert gradcheck(lambda s: vf.attention_logits(s, labels, 3), similarity.requires_grad_())


def test_attention_does_not_underflow():
    similarity = torch.tensor([[200.0, -200.0, -190.0]], requires_grad=True)
    logits = vf.attention_logits(similarity, torch.tensor([0, 1, 1]), 2)
    assert logits.log_softmax(-1)[0, 1].item() == pytest.approx(-390.0, abs=1e-3)
    logits.log_softmax(-1)[0, 1].backward()
    assert similarity.grad[0, 2].item() == pytest.approx(1.0, abs=1e-3)


def test_query_nll_equals_oracle_and_passes_gradcheck(generator):
    logits = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (2, 4), generator=generator)
    expected = [oracle.query_nll(row.tolist(), y.tolist()) for row, y in zip(logits, labels)]  # noqa: B905
    torch.testing.assert_close(
        vf.query_nll(logits, labels), torch.tensor(expected, dtype=torch.float64)
    )
    assert gradcheck(lambda x: vf.query_nll(x, labels), logits.requires_grad_())


def test_query_nll_of_no_queries_is_zero():
    logits, labels = torch.zeros(2, 0, 3), torch.zeros(2, 0, dtype=torch.int64)
    assert torch.equal(vf.query_nll(logits, labels), torch.zeros(2))


@pytest.mark.parametrize(
    "values", [(1.3, 0.7, -0.5, 2.0), (4.0, 0.2, 1.0, 1.0), (0.0, 3.0, 0.0, 1.0)]
)
def test_gaussian_kl_equals_integral(values):
    loc, scale, prior_mean, prior_sigma = values
    ours = vf.gaussian_kl(
        torch.tensor(loc, dtype=torch.float64),
        torch.tensor(scale).double(),
        prior_mean,
        prior_sigma,
    )
    assert ours.item() == pytest.approx(oracle.gaussian_kl(*values), abs=1e-7)


def test_gaussian_kl_gradients():
    loc = torch.tensor([1.3, 4.0], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.7, 2.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda m, s: vf.gaussian_kl(m, s, 1.0, 3.0), (loc, scale))
    vf.gaussian_kl(loc, scale, 1.0, 3.0).sum().backward()
    torch.testing.assert_close(loc.grad, (loc.detach() - 1) / 9)
    torch.testing.assert_close(scale.grad, -1 / scale.detach() + scale.detach() / 9)


def test_auxiliary_weight_per_task_instead_of_per_epoch():
    index = torch.tensor([0, 1, 99, 1000])
    weight = vf.auxiliary_weight(index, gamma=100.0, epoch_length=1)
    torch.testing.assert_close(weight, torch.tensor([0.99, 0.98, 0.0, 0.0]))


def test_auxiliary_weight_never_leaves_zero():
    weight = vf.auxiliary_weight(torch.arange(0, 40_000, 100), gamma=150.0)
    assert weight.min() == 0
    assert (weight.diff() <= 0).all()


def test_log_predictive_averages_probabilities(generator):
    logits = torch.randn(5, 2, 4, 3, generator=generator, dtype=torch.float64)
    expected = logits.softmax(-1).mean(0)
    torch.testing.assert_close(vf.log_predictive(logits).exp(), expected)
    torch.testing.assert_close(vf.log_predictive(logits[:1]), logits[0].log_softmax(-1))
    assert gradcheck(vf.log_predictive, logits.requires_grad_())


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vf.dot_logits(torch.ones(2, 5), torch.ones(3, 4)), "of the same dim"),
        (lambda: vf.dot_logits(torch.ones(5), torch.ones(3, 5)), "of the same dim"),
        (
            lambda: vf.dot_logits(torch.ones(2, 5), torch.ones(3, 5), torch.ones(2)),
            "last axis is 1",
        ),
        (lambda: vf.prototypes(torch.ones(2, 5), torch.tensor([0, 0]), 1), "at least 2 classes"),
        (lambda: vf.prototypes(torch.ones(2, 5), torch.tensor([0, 2]), 2), "0..1 for 2 classes"),
        (lambda: vf.prototypes(torch.ones(2, 5), torch.tensor([0, -1]), 2), "got -1..0"),
        (lambda: vf.prototypes(torch.ones(2, 5), torch.tensor([0, 1]), 3), "none for class 2"),
        (lambda: vf.prototypes(torch.ones(2, 5), torch.tensor([0]), 2), "one label per support"),
        (
            lambda: vf.attention_logits(torch.ones(1, 2), torch.tensor([0, 0]), 2),
            "none for class 1",
        ),
    ],
)
def test_wrong_input_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.usefixtures("as_user")
def test_tensors_of_different_tasks_and_labels_that_are_none():
    with pytest.raises(ValueError, match=r"same tasks, got leading axes \(2,\), \(3,\), \(\)"):
        vf.dot_logits(torch.ones(2, 1, 5), torch.ones(3, 4, 5))
    with pytest.raises(ValueError, match="integer support labels, got torch.float32"):
        vf.prototypes(torch.ones(2, 5), torch.ones(2), 2)


def test_a_missing_class_of_a_later_task_is_found():
    labels = torch.tensor([[0, 1, 2], [0, 1, 1]])
    with pytest.raises(ValueError, match="none for class 2"):
        vf.prototypes(torch.ones(2, 3, 5), labels, 3)


@pytest.mark.parametrize("offset", [0.0, 1.0, 10.0, 30.0])
def test_uncentred_embeddings_keep_their_precision(offset, generator):
    """Embeddings of a ReLU network have a large common part; float32 must not drown in it."""
    query = offset + 0.03 * torch.randn(75, 1600, generator=generator)
    centres = offset + 0.03 * torch.randn(5, 1600, generator=generator)

    def plain(metric, *inputs):
        host = PrototypicalNetwork(Identity(1600), metric=metric, normalize="none")
        return host.compare(*inputs, 1.0).softmax(-1)

    for metric in ("euclidean", "norm"):
        ours = plain(metric, query, centres)
        assert (ours - plain(metric, query.double(), centres.double())).abs().max() < 1e-3


def test_large_embeddings_are_normalised_not_lost():
    x = torch.tensor([[3e20, 4e20]])
    torch.testing.assert_close(vf.normalize(x), torch.tensor([[0.6, 0.8]]))


def test_unit_vectors_are_normalised_or_nan_but_never_lost():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e20, 4e20], [torch.nan, 1.0]])
    found = vf.unit(x)
    assert torch.equal(found[:2], vf.normalize(x)[:2])
    assert found[2:].isnan().all()
    torch.testing.assert_close(vf.normalize(x)[2], torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize("name", LOGITS)
def test_nan_is_never_hidden(name):
    query = torch.full((2, 5), torch.nan)
    assert getattr(vf, name)(query, torch.ones(3, 5)).isnan().all()


@pytest.mark.parametrize("name", LOGITS)
def test_autocast_does_not_lower_the_precision(name, generator):
    query, centres = torch.randn(2, 6, 50, generator=generator)
    plain = getattr(vf, name)(query, centres, 100.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(getattr(vf, name)(query, centres, 100.0), plain)


def test_numbers_as_scale_keep_the_precision_of_the_embeddings():
    _, query, centres = tasks()
    torch.testing.assert_close(
        vf.dot_logits(query, centres, 0.1), 0.1 * query @ centres.mT, rtol=0, atol=1e-12
    )


def test_half_precision_parameters_have_a_finite_kl():
    loc = torch.full((8000,), 100.0, dtype=torch.float16)
    assert vf.gaussian_kl(loc, torch.full_like(loc, 0.2), 1.0, 1.0).sum().isfinite()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
def test_labels_of_any_integer_type(dtype):
    x, labels = torch.eye(3), torch.tensor([2, 0, 1], dtype=dtype)
    assert torch.equal(vf.prototypes(x, labels, 3), x[[1, 2, 0]])
    assert vf.attention_logits(x, labels, 3).shape == (3, 3)
    assert vf.query_nll(x, labels).isfinite()


def test_normalize_can_be_exported():
    class Unit(torch.nn.Module):
        def forward(self, x):
            return vf.normalize(x)

    x = torch.randn(3, 4)
    exported = torch.export.export(Unit(), (x,)).module()
    torch.testing.assert_close(exported(x), vf.normalize(x))
