"""Properties that hold for any task: hypothesis draws the tasks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import varscale
from varscale import functional as vf

DTYPES = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])
METRICS = ["euclidean", "cosine", "dot", "norm"]


@st.composite
def episodes(draw, dtypes=DTYPES, max_shot=4):
    tasks, way = draw(st.integers(1, 3)), draw(st.integers(2, 6))
    shots = draw(st.lists(st.integers(1, max_shot), min_size=way, max_size=way))
    queries, dim = draw(st.integers(0, 5)), draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([0.0, 1e-3, 1.0, 30.0]))
    dtype = draw(dtypes)
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(shots)]).expand(tasks, -1)

    def items(n):
        return (size * torch.randn(tasks, n, dim, generator=generator)).to(dtype)

    return varscale.Episode(
        items(labels.shape[1]),
        labels.clone(),
        items(queries),
        torch.randint(way, (tasks, queries), generator=generator),
        n_way=way,
    )


def model_for(episode, host, scaler, metric, **options):
    torch.manual_seed(0)
    return varscale.create(
        host,
        backbone="identity",
        backbone_options={"dim": episode.support.shape[-1]},
        scaler=scaler,
        metric=metric,
        scaler_options=options or None,
    )


@pytest.mark.parametrize("host", ["pn", "matching"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scaler", ["svs", "d-avs"])
@settings(max_examples=25, deadline=None)
@given(episode=episodes())
def test_probabilities_sum_to_one_and_nothing_is_nan(host, metric, scaler, episode):
    model = model_for(episode, host, scaler, metric)
    p = model(episode).exp()
    assert torch.allclose(p.sum(-1), torch.ones_like(p.sum(-1)), atol=1e-5)
    loss = model.loss(episode, index=0)
    loss.total.backward()
    assert loss.total.isfinite()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("host", ["pn", "matching"])
@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=20, deadline=None)
@given(episode=episodes(st.just(torch.float64)), seed=st.integers(0, 1000))
def test_permuting_classes_or_queries_permutes_the_answer(host, metric, episode, seed):
    model = model_for(episode, host, "d-avs", metric).double()
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randperm(episode.n_way, generator=generator)
    order = torch.randperm(episode.query.shape[1], generator=generator)
    moved = varscale.Episode(
        episode.support,
        classes[episode.support_labels],
        episode.query[:, order],
        None,
        n_way=episode.n_way,
    )
    expected = model(episode)[:, order]
    torch.testing.assert_close(model(moved)[..., classes], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=25, deadline=None)
@given(
    episode=episodes(st.just(torch.float64)),
    alpha=st.floats(1e-3, 1e3),
)
def test_a_positive_scalar_never_changes_the_arg_max(metric, episode, alpha):
    plain = model_for(episode, "pn", "fixed", metric, alpha=1.0)
    scaled = model_for(episode, "pn", "fixed", metric, alpha=alpha)
    reference, answer = plain(episode), scaled(episode).argmax(-1, keepdim=True)
    # Where two classes tie to rounding, either is right.
    best = reference.max(-1, keepdim=True).values
    torch.testing.assert_close(reference.gather(-1, answer), best, rtol=0, atol=1e-9)


def test_a_vector_does_change_the_arg_max():
    query, centres = torch.tensor([[0.7, -0.7]]), torch.tensor([[0.7, 0.7], [0.0, -1.0]])
    plain = vf.euclidean_logits(query, centres).argmax()
    assert plain == 1
    assert vf.euclidean_logits(query, centres, torch.tensor([2.25, 0.25])).argmax() == 0


@settings(max_examples=25, deadline=None)
@given(episode=episodes(st.just(torch.float64)), factor=st.floats(0.1, 10.0))
def test_gradient_of_the_scale_grows_with_the_squared_norm(episode, factor):
    """C24: at equal probabilities, embeddings s times larger give a gradient s^2 times larger."""
    centres = vf.prototypes(episode.support, episode.support_labels, episode.n_way)

    def gradient(s, alpha):
        alpha = torch.tensor([alpha], dtype=torch.float64, requires_grad=True)
        logits = vf.euclidean_logits(s * episode.query, s * centres, alpha)
        vf.query_nll(logits, episode.query_labels).sum().backward()
        return alpha.grad

    torch.testing.assert_close(
        gradient(factor, 1 / factor**2), factor**2 * gradient(1.0, 1.0), rtol=1e-8, atol=1e-8
    )
