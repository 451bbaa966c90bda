import json
import subprocess
import sys

import pytest

from varscale.cli.main import COMMANDS, main


def run(*arguments):
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


def test_ls_names_every_member(capsys):
    assert run("ls", "--json") == 0
    listing = json.loads(capsys.readouterr().out)
    assert set(listing) == {"hosts", "scalers", "backbones", "presets", "configs"}
    assert set(listing["scalers"]) == {
        "fixed", "together", "svs", "decay", "d-svs", "avs", "d-avs", "d-avs-low-rank"
    }  # fmt: skip
    assert "prior_mean" in listing["scalers"]["svs"]["options"]
    assert run("ls") == 0
    assert "matching" in capsys.readouterr().out


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
        (["bench", "--zzz", "3"], "unrecognized arguments: --zzz"),
        (["list"], "'ls'"),
        ([], "command"),
    ],
)
def test_wrong_input_is_one_clear_sentence_and_status_2(arguments, message, capsys):
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    assert run(command, "--help") == 0
    assert f"Example: varscale {command}" in capsys.readouterr().out


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
