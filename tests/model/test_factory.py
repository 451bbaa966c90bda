import math

import pytest
import torch
from torch import nn

import varscale
from varscale import functional as vf
from varscale.hosts import HOSTS, Host
from varscale.learn import optimizers
from varscale.model import PRESETS
from varscale.model.presets import PAPER_TASKS
from varscale.scalers import DAVS, SVS


def make(scaler, preset="default", **options):
    return varscale.create(
        backbone="identity",
        backbone_options={"dim": 1600},
        scaler=scaler,
        preset=preset,
        **options,
    )


def settings(model):
    s = model.scaler
    return (s.prior_mean, s.prior_sigma, s.kl_weight, s.lr)


@pytest.mark.parametrize("preset", ["default", "reproduction"])
def test_hosts_of_the_default_and_of_the_reproduction(preset):
    plain = make(None, preset)
    assert (plain.host.normalize, plain.host.kappa) == ("none", 1.0)
    assert make(None, preset, metric="cosine").host.normalize == "prototype"
    assert make("fixed", preset).host.normalize == "prototype"
    assert make("together", preset).host.kappa == 0.5


def test_default_preset_needs_no_initial_value_and_no_rate():
    centre = math.log(10.0)
    for name, kl_weight, lr in (("svs", 0.04, 0.02), ("d-svs", 0.04, 0.02), ("d-avs", 1.0, None)):
        model = make(name)
        assert (model.host.kappa, model.host.normalize) == (0.5, "prototype")
        assert model.objective.aux_epochs is None
        assert (model.scaler.prior_sigma, model.scaler.kl_weight, model.scaler.lr) == (
            3.0, kl_weight, lr
        )  # fmt: skip
        location, spread = model.scaler.log_parameters()
        assert location.unique().item() == pytest.approx(centre)
        assert spread.unique().item() == pytest.approx(0.2)
        assert not model.transductive
    assert make("svs").scaler.family == "log-normal"
    assert make("d-svs").scaler.family == "hierarchical"
    for name in ("avs", "d-avs"):
        assert make(name).scaler.family == "hierarchical"
        assert make(name).scaler.task_prototype == "support"


def test_reproduction_preset_is_the_table_of_published_constants():
    assert settings(make("svs", "reproduction")) == (1.0, 1.0, 1.0, 1e-4)
    assert settings(make("d-svs", "reproduction")) == (1.0, 1600.0, 0.01, 16.0)
    assert settings(make("d-avs", "reproduction")) == (100.0, 1600.0, 1.0, None)
    for name in ("svs", "d-svs"):
        model = make(name, "reproduction")
        assert (model.host.kappa, model.host.normalize) == (0.5, "prototype")
        assert model.objective.aux_epochs is None
        assert model.scaler.loc.unique().item() == 100.0
        assert model.scaler.sigma.unique().item() == pytest.approx(0.2)
    amortised = make("d-avs", "reproduction")
    assert (amortised.objective.aux_epochs, amortised.objective.aux_scale) == (150.0, 100.0)
    assert amortised.scaler.sigma == 1.0
    assert amortised.transductive


@pytest.mark.parametrize("preset", ["reproduction", "paper", "released"])
@pytest.mark.parametrize("name", ["svs", "d-svs", "avs", "d-avs"])
def test_published_presets_are_of_the_normal_family(name, preset):
    assert make(name, preset).scaler.family == "normal"
    assert make(name, preset).scaler.log_parameters() == []


def test_paper_preset():
    for name in ("svs", "d-svs"):
        model = make(name, "paper")
        assert (model.host.kappa, model.scaler.kl_weight) == (1.0, 1 / PAPER_TASKS)
    model = make("d-avs", "paper")
    assert (model.objective.aux_scale, model.scaler.kl_weight) == (1.0, 1.0)
    assert model.scaler.sigma == "generated"


def test_released_preset():
    for name in ("svs", "d-svs"):
        model = make(name, "released")
        assert (model.host.kappa, model.host.legacy_alpha_grad) == (0.5, True)
    model = make("d-avs", "released")
    assert (model.scaler.kl_weight, model.scaler.sigma) == (0.0, 1.0)
    assert model.objective.aux_scale == 100.0
    assert not model.host.legacy_alpha_grad
    unscaled = varscale.create("pn", metric="cosine", preset="released")  # K27
    assert (unscaled.host.metric, unscaled.host.normalize) == ("dot", "none")
    assert varscale.create("pn", metric="cosine").host.metric == "cosine"
    assert make("d-svs", "released", metric="cosine").host.metric == "cosine"


@pytest.mark.parametrize("preset", varscale.PRESETS)
@pytest.mark.parametrize("scaler", [None, *varscale.scalers.SCALERS])
@pytest.mark.parametrize("host", varscale.hosts.HOSTS)
def test_every_preset_builds_every_pair(preset, scaler, host):
    backbone = varscale.backbones.Tiny()
    if varscale.hosts.HOSTS[host].conditioned:
        backbone = varscale.backbones.ResNet12(image_size=8, width=1 / 64)
    for metric in ("euclidean", "cosine", "dot", "norm"):
        model = varscale.create(
            host, backbone=backbone, scaler=scaler, metric=metric, preset=preset
        )
        unscaled = PRESETS[preset].unscaled if scaler is None else {}
        assert model.host.metric == unscaled.get(metric, {}).get("metric", metric)


def test_options_override_the_preset():
    model = make(
        "d-svs",
        "paper",
        host_options={"kappa": 0.5},
        scaler_options={"kl_weight": 0.5, "effective_tasks": None},
        objective_options={"likelihood": "mean"},
    )
    assert model.host.kappa == 0.5
    assert model.scaler.kl_weight == 0.5
    assert model.objective.likelihood == "mean"


def test_presets_know_scalers_given_as_objects():
    assert make(DAVS(dim=1600, family="normal"), "reproduction").objective.aux_epochs == 150.0
    assert make(DAVS(dim=1600)).objective.aux_epochs is None
    assert make(SVS(), "released").host.legacy_alpha_grad


def test_a_host_of_ones_own_without_scaling():
    @HOSTS.register("own")
    class Own(Host):
        def references(self, support, labels, *, n_way):
            return vf.prototypes(support, labels, n_way)

        def logits(self, query, references, labels, alpha, *, n_way):
            return self.compare(query, references, alpha)

    try:
        assert varscale.create("own", backbone="tiny").host.kappa == 1.0
    finally:
        del HOSTS._members["own"]


def test_own_modules_instead_of_names():
    backbone = nn.Flatten()
    backbone.out_dim = 12
    scaler = SVS(init=5.0)
    model = varscale.create(backbone=backbone, scaler=scaler, preset="paper")
    assert model.scaler is scaler
    assert model.host.kappa == 1.0
    x = torch.rand(1, 2, 3, 4)
    labels = torch.tensor([[0, 1]])
    assert model(varscale.Episode(x, labels, x, labels, n_way=2)).shape == (1, 2, 2)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"host": "pm"}, "Unknown host 'pm'; known: matching, pn, tadam. Did you mean 'pn'"),
        ({"scaler": "dsvs"}, "Unknown scaler 'dsvs'.*Did you mean 'd-svs'"),
        ({"backbone": "conv-4"}, "Did you mean 'conv4'"),
        ({"preset": "papr"}, "Unknown preset 'papr'.*Did you mean 'paper'"),
        ({"metric": "cos"}, "Unknown metric 'cos'"),
        (
            {"scaler": "svs", "scaler_options": {"init_loc": 1.0}},
            "option of scaler 'svs': 'init_loc'",
        ),
        ({"backbone_options": {"size": 84}}, "option of backbone 'conv4'"),
        ({"objective_options": {"gamma": 150}}, "option of the objective"),
        ({"scaler_options": {"lr": 1.0}}, "need the name of a scaler"),
        (
            {"backbone": nn.Identity(), "backbone_options": {"dim": 3}},
            "need the name of a backbone",
        ),
        ({"backbone": nn.Identity()}, "integer out_dim"),
        ({"backbone": "identity"}, "needs the option 'dim'"),
        ({"scaler": 3}, "name of a scaler, a Scaler or None, got 3"),
        ({"host": None}, "Unknown host None"),
        ({"host_options": {"backbone": "tiny"}}, "Give backbone as an argument"),
        ({"scaler": "d-avs", "scaler_options": {"dim": 6}}, "host's 1600-dimensional"),
        ({"scaler": DAVS(dim=6)}, "Give it dim=1600"),
    ],
)
def test_unknown_names_and_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        varscale.create(**arguments)


def test_optimizers_of_each_kind():
    conv = {"backbone": "tiny"}
    svs = optimizers(varscale.create(**conv, scaler="svs"), queries_per_task=75)
    assert [type(o).__name__ for o in svs] == ["Adam", "LogAdam"]
    published = varscale.create(**conv, scaler="svs", preset="reproduction")
    published = optimizers(published, queries_per_task=75)
    assert [type(o).__name__ for o in published] == ["Adam", "SGD"]
    together = optimizers(
        varscale.create(**conv, scaler="together"), queries_per_task=75, algorithm="sgd"
    )
    assert [type(o).__name__ for o in together] == ["SGD"]
    assert together[0].param_groups[0]["momentum"] == 0.9
    with pytest.raises(ValueError, match="'adam' or 'sgd', got 'lion'"):
        optimizers(varscale.create(**conv), queries_per_task=75, algorithm="lion")
