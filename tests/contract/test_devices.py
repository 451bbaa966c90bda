"""Members run on a device that is not here.

A tensor on `meta` has a shape and no values. Whatever reads one fails here and makes a GPU wait;
a tensor made on the CPU meets those of the device and fails on both.
"""

from dataclasses import replace

import pytest
import torch
from contract.test_members import PAIRS, build, episode_for

from varscale.classifier.correction import left_out_scores
from varscale.classifier.place import place_task
from varscale.classifier.prior import broad_prior
from varscale.data import Dataset, EpisodeSampler
from varscale.evaluation.conformal import LEVELS, Conformity
from varscale.evaluation.evaluation import embed_split
from varscale.functional import (
    Whitening,
    average_softmax,
    fit_probe,
    own_similarity,
    query_logits,
    scale_factor,
)
from varscale.hosts import HOSTS
from varscale.learn import optimizers
from varscale.learn.step import clip_gradients
from varscale.model.rows import predict_rows
from varscale.runs.loss import TaskLoss
from varscale.testing.devices import META, OneDevice


@pytest.mark.parametrize("algorithm", ["adam", "sgd"])
@pytest.mark.parametrize(("host", "scaler"), PAIRS)
def test_a_training_step_stays_on_its_device(host, scaler, algorithm):
    model = build(host, scaler).to(META)
    steppers = optimizers(model, queries_per_task=6, algorithm=algorithm)
    episode = episode_for(model).to(META)
    with OneDevice():
        terms = TaskLoss(model, seed=0)(5, episode.n_way, **episode.tensors)
        terms["loss"].backward()
        for optimizer in steppers:
            clip_gradients(optimizer, 1.0, "variable")
            clip_gradients(optimizer, 1.0, "global")
            optimizer.step()
    assert {x.device for x in terms.values()} == {META}
    assert all(p.grad.is_meta for p in model.parameters())


@pytest.mark.parametrize("samples", [0, 3])
@pytest.mark.parametrize(("host", "scaler"), PAIRS)
def test_predictions_stay_on_their_device(host, scaler, samples, tiny_images):
    split = Dataset.open(tiny_images)["test"]
    rows = EpisodeSampler(split.labels, 3, 2, 4).batch(0, 2)
    model = build(host, scaler).to(META).eval()
    episode = split.episode(rows).to(META)
    items = embed_split(model, split, META)
    with OneDevice(), torch.no_grad():
        if HOSTS[host].conditioned:
            log_p = model(episode, samples=samples)
        else:
            log_p = predict_rows(model, items, rows, samples=samples)
    assert log_p.is_meta
    assert log_p.shape == (2, 12, 3)


def test_an_auxiliary_loss_that_fades_stays_on_its_device():
    model = build("pn", "d-avs/normal").to(META)
    object.__setattr__(model.objective, "aux_epochs", 5.0)
    episode = episode_for(model).to(META)
    with OneDevice():
        loss = model.loss(episode, index=0)
    assert loss.aux.is_meta


def test_the_classifier_stays_on_its_device():
    """Its formulas do; `fit_task` reads whether any class has two examples."""
    labels = torch.arange(12).repeat_interleave(2).to(META)
    x = torch.randn(24, 6, dtype=torch.float64).to(META)
    tables = torch.zeros(3, 1, LEVELS).unbind()
    conformity = Conformity(torch.tensor([1]), *tables, torch.tensor([12]))
    conformity = Conformity(**{name: t.to(META) for name, t in vars(conformity).items()})
    count = torch.ones(12, device=META, dtype=torch.long)
    axes = Whitening(torch.zeros(6), torch.eye(6))
    axes = Whitening(*(t.double().to(META) for t in vars(axes).values()))
    prior = replace(broad_prior(6), whitening=axes, between=2.0)
    with OneDevice():
        place = place_task(prior, prior.embed(x), labels, 12)
        alpha = prior.mean * place.spread
        scores, _ = left_out_scores(prior, place, prior.embed(x), labels)
        spread = prior.scale_spread(place.shift)
        factor, std = scale_factor(scores, labels, torch.ones_like(x[:, 0]), spread)
        weights = fit_probe(place.unit(x), labels, scores, alpha[..., None, None], steps=2)
        bias = own_similarity(place.count, place.scatter)
        known = (place.references, weights, bias)
        logits = query_logits(place.unit(x), *known, power=0.3, typical=0.5)
        p = average_softmax(logits, std)
        floors = [conformity.thresholds(count, 0.1), *conformity.set_thresholds(count, 0.1)]
    tensors = [scores, factor, weights, logits, p, *floors]
    assert {t.device for t in tensors} == {META}
