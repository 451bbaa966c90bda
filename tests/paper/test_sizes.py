"""A reduced experiment keeps the ratios of the paper's."""

from dataclasses import replace

import pytest
import torch

from varscale.paper.sizes import keep_scaler_ratios, resize
from varscale.runs import TrainConfig


def test_small_keeps_the_ratios_of_the_schedule():
    full = TrainConfig(
        "images", preset="reproduction", backbone="conv4", scaler="d-avs", steps=20_000,
        lr_every=2000, metric="cosine",
    )  # fmt: skip
    small = resize(full, "small", "other")
    assert (small.dataset, small.steps, small.lr_every) == ("other", 3000, 300)
    assert small.objective_options["aux_epochs"] == pytest.approx(150 * 0.15)
    for scaler, size in (("svs", 1), ("d-svs", 256)):
        full = replace(full, scaler=scaler)
        small = replace(resize(full, "small"), backbone_options={"image_size": 32})
        fitted = keep_scaler_ratios(full, small).model().scaler
        before = full.model().scaler
        assert fitted.size == size
        moved = before.lr * full.steps * full.n_query / before.size
        assert fitted.lr * small.steps * small.n_query / fitted.size == pytest.approx(moved)
        assert fitted.kl_weight / small.n_query == pytest.approx(before.kl_weight / full.n_query)
    paper = resize(full, "paper")
    assert paper == replace(full, val_every=1000)  # a stated deviation, for the time it takes
    assert keep_scaler_ratios(full, paper) == paper


@pytest.mark.parametrize("prior_sigma", [None, "sqrt"])
def test_small_keeps_the_weight_of_the_prior_of_d_avs(prior_sigma):
    full = TrainConfig(
        "images", preset="reproduction", backbone="conv4", scaler="d-avs", steps=20_000,
        lr_every=2000, metric="cosine", scaler_options={"prior_sigma": prior_sigma},
    )  # fmt: skip
    small = replace(resize(full, "small"), backbone_options={"image_size": 32})

    def pull(config):
        """The weighted KL against the queries, for all entries at 100 + 50 and sigma as prior."""
        scaler = config.model().scaler
        mean = torch.full((scaler.size,), 150.0, dtype=torch.float64)
        q = torch.distributions.Normal(mean, torch.full_like(mean, scaler.prior_sigma))
        return scaler.penalty(q).item() / config.n_query

    assert pull(keep_scaler_ratios(full, small)) == pytest.approx(pull(full))
