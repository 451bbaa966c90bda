import json
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from varscale.cli.commands import COMMANDS
from varscale.cli.main import main
from varscale.runs import TrainConfig
from varscale.version import __version__


def run(*arguments):
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


def output(capsys, *arguments):
    """What a command prints at 100 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        assert run(*arguments) == 0
    return capsys.readouterr().out


def test_ls_names_every_member(capsys):
    listing = json.loads(output(capsys, "ls", "--json"))
    families = ["scalers", "hosts", "backbones", "embedders", "presets", "configs", "datasets"]
    assert list(listing) == families
    assert "run:RUN" in listing["embedders"]
    assert set(listing["scalers"]) == {
        "fixed", "together", "svs", "decay", "d-svs", "avs", "d-avs", "d-avs-low-rank"
    }  # fmt: skip
    assert listing["scalers"]["svs"]["options"]["init"] is None
    assert listing["scalers"]["svs"]["options"]["family"] == "log-normal"
    assert listing["scalers"]["decay"]["options"]["family"] == "normal"
    assert listing["backbones"]["conv4"]["options"]["image_size"] == 84
    assert listing["presets"]["paper"]["options"]["host.kappa"] == 1.0
    assert "glyphs" in listing["datasets"]
    overview = output(capsys, "ls")
    assert len(overview.splitlines()) <= 80
    for family, members in listing.items():
        details = output(capsys, "ls", family)
        assert "…" not in details
        assert set(members) <= set(details.splitlines())  # each name alone on a line
        for name, entry in members.items():
            assert name in overview
            assert all(option in details for option in entry["options"])
        if family != "configs":
            assert len(details.splitlines()) <= 80
    assert "family=log-normal, init, sigma=0.2" in output(capsys, "ls", "scalers")


def test_ls_keeps_names_whole_in_a_narrow_window(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert run("ls") == 0
    assert "d-avs-low-rank" in capsys.readouterr().out
    assert run("ls", "scalers") == 0
    assert "d-avs-low-rank\n" in capsys.readouterr().out


def test_what_ls_lists_can_be_used(capsys):
    listing = json.loads(output(capsys, "ls", "configs", "--json"))
    assert "glyphs/svs" in listing["configs"]
    shown = output(capsys, "train", "--config", "glyphs/svs", "--n_way", "7", "--print_config")
    assert "scaler: svs" in shown
    assert "n_way: 7" in shown


def test_bench_prints_one_json_object(capsys):
    assert run("bench", "--repeats", "1", "--parts", "[heads, rates]", "--json") == 0
    ratios = json.loads(capsys.readouterr().out)
    assert set(ratios) == {
        "head_speedup_dsvs", "head_memory_dsvs", "head_over_plain", "tasks_per_s", "episodes_per_s"
    }  # fmt: skip
    assert 0 < ratios["head_memory_dsvs"] < 0.1
    assert run("bench", "--repeats", "1", "--parts", "[heads]") == 0
    assert "head_speedup_dsvs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--parts", "[head]"], "Unknown part 'head'"),
        (["bench", "--repeats", "0"], "Expected repeats >= 1, got 0"),
        (["bench", "--repeats", "many"], "many"),
        (["bench", "--repeat", "3"], "Did you mean --repeats?"),
        (["bench", "--zzz", "3"], "unknown option --zzz. varscale bench --help lists"),
        (["trian"], "unknown command 'trian'. Did you mean varscale train?"),
        (["--trian"], "unknown command"),
        (["zzzz"], "varscale --help lists the commands"),
        ([], "Expected a command"),
        (["ls", "scaler"], "Did you mean 'scalers'?"),
        (["train", "--init_loc", "3"], "Did you mean --scaler_options.init?"),
        (["train", "--filters", "3"], "Did you mean --backbone_options.filters?"),
        (["train", "--n_shots", "3"], "Did you mean --n_shot?"),
        (["train", "--config", "glyphs/svz"], "Did you mean 'glyphs/svs'?"),
        (["train"], "the option --dataset is required. Example: varscale train"),
        (["compare", "runs/svs"], "RUN_A and RUN_B; RUN_B is missing. Example: varscale compare"),
        (["report"], "PATH is missing; give one or more. Example: varscale report"),
        (["export", "tests", "model.pt"], "Expected a file name ending in .onnx, got model.pt"),
        (["eval"], "RUN is missing. Example: varscale eval runs/svs"),
        (["doctor", "me"], "unexpected me. Example: varscale doctor"),
        (["bench", "--repeats"], "--repeats needs a value"),
        (["data", "--json"], "varscale data --help lists the commands"),
        (["export", "nowhere", "a.onnx"], "got nowhere, which does not exist"),
        (["claims", "C99"], "Unknown claim 'C99'"),
    ],
)
def test_wrong_input_is_one_clear_sentence_and_status_2(arguments, message, capsys):
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_help_fits_a_page_and_groups_the_commands(capsys):
    page = output(capsys, "--help")
    assert len(page.splitlines()) <= 40
    assert max(map(len, page.splitlines())) <= 100
    shown = [line.split()[0] for line in page.splitlines() if line.startswith("  ")]
    assert shown == [name for name in COMMANDS if " " not in name]
    assert output(capsys, "-h") == page


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_fits_80_lines_and_names_no_types(command, capsys):
    page = output(capsys, *command.split(), "--help")
    assert f"Example: varscale {command}" in page
    assert len(page.splitlines()) <= 80
    assert max(map(len, page.splitlines())) <= 100
    assert not re.search(r"Optional|Literal|Union|type:|None|SUPPRESS|\bdict\b|null", page)


def test_help_of_train_has_every_option_in_a_section(capsys):
    page = output(capsys, "train", "--help")
    assert "\nOptions\n" not in page  # where those in no section would be
    for field in fields(TrainConfig):
        assert f"--{'import' if field.name == 'imports' else field.name}" in page
    assert "Learning rate of the weights (default 0.001)" in page


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["data", "--help"], ["trian"]])
def test_the_first_page_needs_no_torch(words):
    code = (
        f"import sys; from varscale.cli.main import main; main({words}); "
        "print([m for m in ('torch', 'numpy', 'jsonargparse', 'rich') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_version(capsys):
    assert output(capsys, "--version") == f"varscale {__version__}\n"


def test_the_program_is_installed():
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="console_scripts", name="varscale")
    assert entry.load() is main


def test_import_is_light():
    """Nothing that a plug-in does not need: no estimator, command line or table library."""
    heavy = (
        "filelock sklearn scipy yaml jsonargparse rich PIL matplotlib lightning_fabric "
        "tensorboard pytorch_metric_learning"
    )
    code = f"import sys, varscale; print([m for m in '{heavy}'.split() if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
