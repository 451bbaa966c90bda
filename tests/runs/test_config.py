"""What a config fills in, and what it refuses."""

import json
from dataclasses import asdict, replace

import pytest
import torch
import yaml

from varscale.cli.parser import ACTIONS
from varscale.cli.train import with_bases
from varscale.data import Dataset
from varscale.model import PRESETS
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve, validation
from varscale.runs.config_files import read_config, shipped_configs
from varscale.scalers import SCALERS, Fixed

CONFIGS = sorted(shipped_configs().rglob("*.yaml"))


@pytest.fixture
def dataset(tiny_images):
    return Dataset.open(tiny_images)


def small(**options):
    return TrainConfig(
        **{"dataset": "tiny-images", "backbone": "tiny", "n_way": 3, "n_query": 3, **options}
    )


@pytest.mark.paper
@pytest.mark.parametrize(
    ("epoch", "rate"),
    [(1, 1e-3), (19, 1e-3), (20, 5e-4), (40, 2.5e-4), (100, 3.125e-5), (200, 9.765625e-7)],
)
def test_the_rate_of_the_released_code(dataset, epoch, rate):
    config = resolve(small(preset="released"), dataset)
    assert config.lr * config.rate_factor((epoch - 1) * 100) == pytest.approx(rate, rel=1e-9)


@pytest.mark.paper
def test_the_rate_of_the_default_and_of_tadam(dataset):
    config = resolve(small(), dataset)
    assert [config.rate_factor(step) for step in (0, 1999, 2000, 4000)] == [1, 1, 0.5, 0.25]
    tadam = small(lr=0.1, lr_milestones=[15_000, 17_500, 20_000], lr_factor=0.1)
    tadam = resolve(tadam, dataset)
    rates = [tadam.lr * tadam.rate_factor(step) for step in (0, 15_001, 17_501, 20_001)]
    assert rates == pytest.approx([0.1, 0.01, 0.001, 0.0001], rel=1e-9)
    assert resolve(small(lr_every=0), dataset).rate_factor(10**6) == 1


@pytest.mark.parametrize(
    ("preset", "scaler", "expected"),
    [
        ("default", "svs", {"steps": 20_000, "val_alpha": "mean", "test_query": 15}),
        ("paper", "d-svs", {"steps": 20_000, "val_alpha": "mean", "test_query": 15}),
        ("released", "svs", {"steps": 20_000, "val_alpha": "sample", "test_query": 1}),
        ("released", "d-svs", {"steps": 30_000, "val_alpha": "sample", "test_query": 1}),
        ("released", "d-avs", {"steps": 20_000, "val_alpha": "mean", "select_by": "training"}),
        ("released", "d-svs", {"select_by": "validation"}),
    ],
)
def test_presets_say_how_to_train(dataset, preset, scaler, expected):
    config = resolve(small(preset=preset, scaler=scaler), dataset)
    assert {key: getattr(config, key) for key in expected} == expected
    mine = resolve(small(preset=preset, scaler=scaler, steps=7, test_query=3), dataset)
    assert (mine.steps, mine.test_query) == (7, 3)
    mine = resolve(small(preset=preset, scaler=scaler, select_by="validation"), dataset)
    assert mine.select_by == "validation"


def test_a_resolved_config_can_be_resolved_again(dataset):
    config = resolve(small(preset="released", scaler="d-avs", val_every=0), dataset)
    assert config.select_by == "validation"  # nothing is selected
    assert resolve(config, dataset) == config


def test_the_exact_bound_counts_the_tasks_of_the_run(dataset):
    options = {"preset": "paper", "scaler": "svs", "steps": 50, "tasks_per_step": 4}
    assert resolve(small(**options), dataset).model().scaler.kl_weight == 1 / 200
    given = resolve(small(**options, scaler_options={"effective_tasks": 10}), dataset)
    assert given.model().scaler.kl_weight == 1 / 10


def test_sizes_come_from_the_dataset(dataset, points):
    config = resolve(small(), dataset)
    assert config.backbone_options == {"image_size": 8, "in_channels": 1}
    embeddings = resolve(TrainConfig(dataset="points", n_way=2, n_query=3), Dataset.open(points))
    assert (embeddings.backbone, embeddings.backbone_options) == ("identity", {"dim": 6})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_way": 8}, "Expected at least 8 classes for 8-way tasks, got 7"),
        ({"n_query": 12}, "A 1-shot episode with 12 queries needs 13 items per class"),
        ({"val_way": 9}, "Expected at least 9 classes for 9-way tasks, got 4"),
        ({"preset": "papr"}, "Unknown preset 'papr'.*Did you mean 'paper'"),
        ({"host": "pm"}, "Unknown host 'pm'"),
        (
            {"scaler": "svs", "scaler_options": {"rate": 1}},
            "Unknown option of scaler 'svs': 'rate'",
        ),
        ({"backbone": "identity"}, "tiny-images has images; the backbone 'identity' wants"),
        ({"backbone_options": {"image_size": 9}}, "Expected image_size=8, .*got 9"),
        ({"n_shot": [1, 2, 1], "val_way": 4}, "n_shot has 3 numbers.* Set val_way to 3"),
        ({"select_by": "training", "val_every": 0}, "got val_every=0"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(dataset, options, message):
    with pytest.raises(ValueError, match=message):
        resolve(small(**options), dataset)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "Expected steps >= 1, got 0"),
        ({"lr": 0.0}, "Expected lr > 0, got 0.0"),
        ({"lr": float("nan")}, "Expected lr > 0, got nan"),
        ({"clip": -1.0}, "Expected clip > 0, got -1.0"),
        ({"val_every": -1}, "Expected val_every >= 0, got -1"),
        ({"devices": 2, "tasks_per_step": 3}, "a multiple of the 2 processes, got 3"),
    ],
)
def test_impossible_values_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options)


def test_embeddings_do_not_go_through_convolutions(points):
    with pytest.raises(
        ValueError, match="points has embeddings of 6 numbers; the backbone 'conv4'"
    ):
        resolve(TrainConfig(dataset="points", backbone="conv4"), Dataset.open(points))


def test_the_hash_tells_results_apart_and_not_machines():
    config = small()
    assert config.hash == replace(config, accelerator="cuda").hash
    assert config.hash != replace(config, seed=1).hash


def test_validation_uses_the_first_items_of_each_class(dataset):
    config = resolve(small(n_way=3, val_items=5, n_query=2), dataset)
    split, sampler = validation(config, dataset)
    assert len(split) == 4 * 5
    whole = dataset["val"]
    for label in set(split.labels.tolist()):
        kept = split.rows[split.labels == label]
        assert kept.tolist() == whole.rows[whole.labels == label][:5].tolist()
    assert sampler.n_way == 3


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_shipped_config_is_understood(path):
    text = path.read_text()
    assert text.startswith("# ")
    commands = [line for line in text.splitlines() if "varscale train --config" in line]
    if "What the cells build on" not in text:
        assert f"configs/{path.parent.name}/{path.name}" in commands[0]
    assert with_bases([f"--config={path}"]) == with_bases(["--config", str(path)])
    args = ACTIONS["train"][0]().parse_args(with_bases(["--config", str(path)]))
    config = read_config(path)
    for name in ("dataset", "host", "scaler", "metric", "steps", "n_shot", "scaler_options"):
        assert getattr(args, name) == getattr(config, name), name
    if config.dataset == "glyphs":
        resolve(config, Dataset.open("glyphs"))


def test_a_file_that_builds_on_itself_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("base: b.yaml\n")
    (tmp_path / "b.yaml").write_text("base: a.yaml\n")
    with pytest.raises(ValueError, match="builds on itself"):
        read_config((tmp_path / "a.yaml").resolve())
    (tmp_path / "b.yaml").unlink()
    with pytest.raises(ValueError, match="There is no config .*b.yaml"):
        read_config(tmp_path / "a.yaml")
    for base, message in (
        ("3", "Expected the name of a file as base"),
        (".", "There is no config"),
        ("c.yaml", r"There is no config .*c\.yaml, on which .*a\.yaml builds"),
    ):
        (tmp_path / "a.yaml").write_text(f"base: {base}\n")
        with pytest.raises(ValueError, match=message):
            read_config(tmp_path / "a.yaml")


def test_a_new_key_with_its_default_changes_no_hash():
    config = small()
    assert config.hash == small(momentum=0.9, cotraining=False, cotraining_options={}).hash
    assert config.hash != small(momentum=0.8).hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"lr": 1}, {"lr": 1.0}),
        ({"weight_decay": 0}, {}),
        ({"clip": 2, "shot_offset": 1}, {"clip": 2.0, "shot_offset": 1.0}),
        ({"scaler": "svs", "scaler_options": {"sigma": 1}},
         {"scaler": "svs", "scaler_options": {"sigma": 1.0}}),
        ({"objective_options": {"aux_scale": 100}}, {}),
        ({"cotraining": True, "cotraining_options": {"decay": 1}},
         {"cotraining": True, "cotraining_options": {"decay": 1.0}}),
        ({"metric": "euclidean"}, {}),
        ({"host": "matching", "scaler": "svs", "metric": "cosine"},
         {"host": "matching", "scaler": "svs"}),
    ],
)  # fmt: skip
def test_the_same_run_in_other_words_has_the_same_hash(one, other):
    assert TrainConfig(dataset="glyphs", **one).hash == TrainConfig(dataset="glyphs", **other).hash


def test_a_members_default_may_be_anything(monkeypatch):
    def register(kind):
        class Mine(Fixed):
            def __init__(self, *, kind=kind, unit=object()):  # noqa: B008
                super().__init__()

        monkeypatch.setitem(SCALERS._members, "mine", Mine)
        return TrainConfig(dataset="glyphs", scaler="mine").hash

    assert register(torch.nn.ReLU) == register(torch.nn.ReLU)
    assert register(torch.nn.ReLU) != register(torch.nn.GELU)


def test_a_wrong_key_in_a_file_is_named(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps({"dataset": "glyphs", "n_shots": 5}))
    with pytest.raises(ValueError, match=r"Unknown key in .*'n_shots'.*Did you mean 'n_shot'"):
        read_config(path)


# --- the scaler's options, in full ---------------------------------------------------------------

PUBLISHED = ("reproduction", "paper", "released")
LEARNED = ("svs", "d-svs", "avs", "d-avs")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("scaler", [*SCALERS, None])
def test_every_option_of_the_scaler_is_recorded_as_it_was_resolved(dataset, scaler, preset):
    config = resolve(small(scaler=scaler, preset=preset, steps=20), dataset)
    assert resolve(config, dataset) == config
    assert resolve(config, dataset).hash == config.hash
    if scaler is None:
        assert config.scaler_options == {}
        return
    options = config.scaler_options
    assert set(SCALERS.options(scaler)) - {"dim"} <= set(options)
    open_ends = {name for name, value in options.items() if value is None}
    assert open_ends <= {"lr", "effective_tasks", "init"}
    twin = TrainConfig(**{**asdict(config), "preset": config.preset})
    ours, theirs = config.model().scaler, twin.model().scaler
    assert repr(ours) == repr(theirs)
    if scaler in LEARNED:
        assert options["family"] == ours.family
        assert options["prior_sigma"] == ours.prior_sigma
        assert (ours.family == "normal") == (preset in PUBLISHED)


@pytest.mark.parametrize("scaler", LEARNED)
def test_a_run_directory_has_every_option(dataset, tmp_path, scaler):
    run = Run.create(tmp_path / "run", resolve(small(scaler=scaler), dataset), dataset)
    written = yaml.safe_load((run.path / "config.yaml").read_text())
    assert written["relearn"] is True
    options = written["scaler_options"]
    assert options == run.config.scaler_options
    expected = {"sigma": 0.2, "init": 10.0, "prior_mean": 10.0, "prior_sigma": 3.0}
    assert {name: options[name] for name in expected} == expected
    assert options["family"] == ("log-normal" if scaler == "svs" else "hierarchical")
    if scaler in ("svs", "d-svs"):
        assert (options["lr"], options["learn_sigma"]) == (0.02, True)
        assert options["kl_weight"] == "elbo"
        assert options["effective_tasks"] == pytest.approx(7 / 3)  # training classes by ways
        assert run.config.model().scaler.kl_weight == pytest.approx(3 / 7)
    else:
        assert (options["kl_weight"], options["task_prototype"]) == (1.0, "support")
    assert Run.open(run.path).config == run.config


def test_a_given_weight_is_kept(dataset):
    given = resolve(small(scaler="d-svs", scaler_options={"kl_weight": 0.3}), dataset)
    assert given.scaler_options["kl_weight"] == 0.3
    given = resolve(small(scaler="d-svs", scaler_options={"effective_tasks": 9}), dataset)
    assert given.model().scaler.kl_weight == 1 / 9


@pytest.mark.parametrize("scaler", LEARNED)
def test_the_hash_does_not_depend_on_the_name_of_the_preset(dataset, scaler):
    by_name = resolve(small(scaler=scaler, preset="reproduction"), dataset)
    aux = {"aux_epochs": 150.0, "aux_scale": 100.0} if scaler in ("avs", "d-avs") else {}
    in_full = small(
        scaler=scaler,
        relearn=False,
        scaler_options={"family": "normal"},
        objective_options=aux,
    )
    in_full = resolve(in_full, dataset)
    assert (by_name.preset, in_full.preset) == ("reproduction", "default")
    assert by_name.hash == in_full.hash
    assert by_name.hash != resolve(small(scaler=scaler), dataset).hash


@pytest.mark.parametrize("scaler", LEARNED)
def test_a_default_in_words_has_the_same_hash(dataset, scaler):
    plain = resolve(small(scaler=scaler), dataset)
    words = {"init": 10, "prior_mean": 10, "prior_sigma": 3, "sigma": 0.2}
    assert resolve(small(scaler=scaler, scaler_options=words), dataset).hash == plain.hash
    published = small(scaler="svs", preset="reproduction")
    words = {"init": 100, "lr": 1e-4, "prior_mean": 1}
    assert (
        resolve(replace(published, scaler_options=words), dataset).hash
        == resolve(published, dataset).hash
    )


# --- relearning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scaler", LEARNED)
def test_relearning_is_for_scales_of_log_space(dataset, scaler):
    assert resolve(small(scaler=scaler), dataset).relearn is True
    assert resolve(small(scaler=scaler, relearn=False), dataset).relearn is False
    assert resolve(small(scaler=scaler, val_every=0), dataset).relearn is False
    assert resolve(small(scaler=scaler, relearn=True), dataset).relearn is True
    normal = {"family": "normal"}
    assert resolve(small(scaler=scaler, scaler_options=normal), dataset).relearn is False
    for preset in PUBLISHED:
        assert resolve(small(scaler=scaler, preset=preset), dataset).relearn is False


@pytest.mark.parametrize("scaler", ["fixed", "together", "decay", None])
def test_what_has_no_log_space_is_not_relearned(dataset, scaler):
    assert resolve(small(scaler=scaler), dataset).relearn is False


@pytest.mark.parametrize(
    "options",
    [
        {"scaler": "svs", "val_every": 0},
        {"scaler": "svs", "scaler_options": {"family": "normal"}},
        {"scaler": "d-avs", "preset": "reproduction"},
        {"scaler": "together"},
        {"scaler": None},
    ],
)
def test_relearning_that_cannot_be_is_refused(dataset, options):
    with pytest.raises(ValueError, match=r"relearn needs validation .* Set relearn to false\."):
        resolve(small(relearn=True, **options), dataset)
