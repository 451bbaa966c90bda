"""What every registered member promises. To be registered is to be tested.

The checks are those of `varscale.testing`, which other people's members are held to as well.
"""

import pytest
import torch

from varscale.backbones import BACKBONES
from varscale.hosts import HOSTS
from varscale.scalers import SCALERS
from varscale.testing import check_backbone, check_host, check_scaler
from varscale.testing.examples import example_episode, make_example

IMAGES = {
    "conv4": {"image_size": 16, "filters": 4},
    "tiny": {},
    "resnet12": {"in_channels": 1, "image_size": 8, "width": 1 / 16},
}
NORMAL = {"family": "normal"}
GENERATED = {"family": "normal", "sigma": "generated", "hidden": 8}
OPTIONS = {
    "avs": {"hidden": 8},
    "d-avs": {"hidden": 8},
    "svs/normal": NORMAL,
    "d-svs/normal": NORMAL,
    "avs/normal": GENERATED,
    "d-avs/normal": GENERATED,
}
"""Options of scalers; with `/normal` after its name, one of the published family."""
FAMILIES = [*SCALERS, *(name for name in OPTIONS if "/" in name)]
PAIRS = [(host, scaler) for host in HOSTS for scaler in FAMILIES]


def build(host="pn", scaler="svs"):
    name, _, _ = scaler.partition("/")
    return make_example(host, name, scaler_options=OPTIONS.get(scaler))


episode_for = example_episode


@pytest.mark.parametrize(("host", "scaler"), PAIRS)
def test_scalers(host, scaler):
    name, _, _ = scaler.partition("/")
    check_scaler(name, host=host, **OPTIONS.get(scaler, {}))


@pytest.mark.parametrize("name", HOSTS)
def test_hosts(name):
    check_host(name)


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones(name):
    check_backbone(name, **IMAGES.get(name, {}))


@pytest.mark.parametrize("host", HOSTS)
def test_the_check_of_bfloat16_embeds_in_it(host):
    model = build(host).eval()
    episode = episode_for(model)
    with torch.no_grad():
        plain = model.host.embed(episode)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model.host.embed(episode)
    assert not torch.equal(mixed[1], plain[1])
