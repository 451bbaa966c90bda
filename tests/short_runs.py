"""Short runs on tiny images, for the tests of training and of run directories."""

from conftest import TINY

from varscale.data import Dataset
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve

SCALERS = {
    "svs": {},
    "d-svs": {},
    "d-avs": {"hidden": 5},
    "svs/normal": {"family": "normal", "lr": 0.01, "learn_sigma": True, "kl_weight": 0.01},
    "d-svs/normal": {"family": "normal", "lr": 1.0, "init": 10.0},
    "d-avs/normal": {"family": "normal", "hidden": 5},
}


def config_of(scaler="svs", **options):
    """A config; the scaler is a name, with `/normal` after it for the published family."""
    settings = {
        **TINY,
        "scaler": scaler.partition("/")[0],
        "scaler_options": SCALERS.get(scaler, {}),
        "steps": 12,
        "val_every": 5,
        "val_episodes": 20,
        "checkpoint_every": 3,
    }
    return TrainConfig(**{**settings, **options})


def new_run(path, config):
    dataset = Dataset.open(config.dataset)
    return Run.create(path, resolve(config, dataset), dataset)
