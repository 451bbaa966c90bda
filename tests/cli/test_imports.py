"""Members from outside at the command line: named once, when a run is trained."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import varscale
from varscale.backbones import BACKBONES
from varscale.cli.main import main
from varscale.core.imports import short_name
from varscale.hosts import HOSTS
from varscale.runs import Run, TrainConfig
from varscale.scalers import SCALERS

MEMBERS = '''
import torch
from torch import nn
from torch.distributions import Normal

from varscale.backbones import BACKBONES, Backbone
from varscale.functional import class_means, unit
from varscale.hosts import HOSTS, Host
from varscale.scalers import SCALERS, Scaler


@SCALERS.register("outside-scaler")
class OutsideScaler(Scaler):
    """A scale of somebody else's."""

    local = False

    def __init__(self, *, init: float = 10.0) -> None:
        super().__init__(size=1, lr=0.01)
        self.loc = nn.Parameter(torch.tensor([init]))

    def forward(self, task):
        loc = self.loc.expand(*task.shape[:-1], 1)
        return Normal(loc, torch.full_like(loc, 0.2), validate_args=False)


@HOSTS.register("outside-host")
class OutsideHost(Host):
    """Prototypes that are shrunk towards their mean."""

    def references(self, support, labels, *, n_way):
        centres = class_means(support, labels, n_way)
        return unit(0.9 * centres + 0.1 * centres.mean(-2, keepdim=True))

    def logits(self, query, references, labels, alpha, *, n_way):
        return self.compare(unit(query), references, alpha)


@BACKBONES.register("outside-backbone")
class OutsideBackbone(Backbone):
    """One hidden layer."""

    def __init__(self, dim: int, *, width: int = 8) -> None:
        super().__init__()
        self.in_shape, self.out_dim = (dim,), width
        self.layers = nn.Sequential(nn.Linear(dim, width), nn.Tanh(), nn.Linear(width, width))

    def forward(self, items):
        return self.layers(items)
'''

SHORT = [
    "--dataset", "points", "--n_way", "2", "--n_query", "4", "--val_every", "5",
    "--val_episodes", "10", "--accelerator", "cpu", "--test_query", "4",
]  # fmt: skip
OUTSIDE = [
    "--import", "outside_members.py", "--scaler", "outside-scaler", "--host", "outside-host",
    "--backbone", "outside-backbone", "--metric", "cosine",
]  # fmt: skip


def run(*arguments):
    try:
        return main([str(a) for a in arguments])
    except SystemExit as stop:
        return stop.code


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Modules and members of a test are gone after it."""
    for registry in (BACKBONES, HOSTS, SCALERS):
        monkeypatch.setattr(registry, "_members", dict(registry._members))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("outside"):
            del sys.modules[name]


@pytest.fixture
def forget(monkeypatch):
    """Forget them in between, as a new process would."""

    def now():
        for registry in (BACKBONES, HOSTS, SCALERS):
            kept = {k: v for k, v in registry._members.items() if "outside" not in v.__module__}
            monkeypatch.setattr(registry, "_members", kept)
        for name in [name for name in sys.modules if name.startswith("outside")]:
            del sys.modules[name]

    return now


@pytest.fixture
def folder(points, tmp_path, monkeypatch):
    (tmp_path / "outside_members.py").write_text(MEMBERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def same_package(monkeypatch):
    """Programs in any folder use this package, wherever it is."""
    monkeypatch.setenv("PYTHONPATH", str(Path(varscale.__file__).parents[1]))


def shell(folder, *arguments, ok=True):
    """Run varscale as a program, in a folder."""
    command = [sys.executable, "-m", "varscale", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert "Traceback" not in result.stderr
    assert (result.returncode == 0) is ok, result.stderr
    return result.stdout if ok else result.stderr


@pytest.mark.slow
def test_the_life_of_a_run_with_members_from_outside(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    path, straight = folder / "run", folder / "straight"
    steps = ["--steps", "400", "--checkpoint_every", "50"]
    words = [sys.executable, "-m", "varscale", "train", *SHORT, *OUTSIDE, *steps, "--out", path]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (path / "metrics.jsonl").is_file():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1].decode()
    assert process.returncode == 128 + signal.SIGINT, said
    assert "varscale resume" in said

    shell(elsewhere, "resume", path)
    shell(folder, "train", *SHORT, *OUTSIDE, *steps, "--out", straight)
    results = [json.loads((p / "result.json").read_text()) for p in (path, straight)]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]

    report = json.loads(shell(elsewhere, "eval", path, "--episodes", "20", "--json"))
    assert report["scaler"] == "outside-scaler"
    compared = shell(elsewhere, "compare", path, straight, "--episodes", "20", "--json")
    assert json.loads(compared)["pairs"][0]["difference"] == 0.0
    shell(elsewhere, "report", path, "--episodes", "20")
    assert "outside-scaler" in (elsewhere / "report.html").read_text()
    shell(elsewhere, "embed", path, "points.npz")
    said = shell(elsewhere, "export", path, "model.onnx", ok=False)
    assert "Expected a prototypical or a matching network, got OutsideHost" in said
    ours = [*OUTSIDE, "--host", "pn", "--steps", "3", "--out", "ours"]
    shell(folder, "train", *SHORT, *ours)
    shell(elsewhere, "export", folder / "ours", "model.onnx")
    assert (elsewhere / "model.onnx").is_file()
    code = f"import varscale; print(type(varscale.load({str(path)!r}).scaler).__name__)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=elsewhere
    )
    assert loaded.stdout.strip() == "OutsideScaler", loaded.stderr

    (folder / "outside_members.py").unlink()
    said = shell(elsewhere, "eval", path, ok=False)
    assert len(said.strip().splitlines()) == 1
    assert "imports: Expected a .py file to import, got" in said


@pytest.fixture
def trained(folder, forget):
    """A run of the members' file, of which this process knows nothing any more."""
    assert run("train", *SHORT, *OUTSIDE, "--steps", "3", "--out", "run") == 0
    forget()
    return folder / "run"


def test_a_run_records_what_it_imports(trained, folder):
    config = yaml.safe_load((trained / "config.yaml").read_text())
    assert config["imports"] == [str(folder.resolve() / "outside_members.py")]
    (code,) = json.loads((trained / "provenance.json").read_text())["code"]
    assert code["module"] == "outside_members.py"
    assert len(code["sha256"]) == 64
    assert Run.open(trained).changed_code() == []
    assert type(varscale.load(trained).scaler).__name__ == "OutsideScaler"


def test_a_run_moves_with_its_module(trained, folder, tmp_path_factory, capsys):
    other = tmp_path_factory.mktemp("other")
    shutil.move(folder / "outside_members.py", other)
    shutil.move(trained, other)
    assert run("eval", other / "run", "--episodes", "10") == 2
    said = capsys.readouterr().err
    assert "outside_members.py, which is not there. Put it there, or change the path." in said
    config = other / "run" / "config.yaml"
    config.write_text(config.read_text().replace(str(folder.resolve()), str(other)))
    assert run("eval", other / "run", "--episodes", "10") == 0  # the hash is not that of a folder


def test_code_that_changed_warns_and_does_not_resume(trained, folder, capsys):
    module = folder / "outside_members.py"
    module.write_text(module.read_text() + "\n# a remark\n")
    with pytest.warns(UserWarning, match="outside_members.py changed after .*run began"):
        varscale.load(trained)
    (trained / "result.json").unlink()
    capsys.readouterr()
    assert run("resume", trained) == 2
    said = capsys.readouterr().err
    assert "outside_members.py changed after" in said
    assert "Put the code back, or train again" in said


def test_a_member_with_other_options_is_not_called_an_altered_config(
    trained, folder, forget, capsys
):
    module = folder / "outside_members.py"
    module.write_text(module.read_text().replace("width: int = 8", "width: int = 9"))
    assert run("eval", trained) == 2
    assert "outside_members.py changed after" in capsys.readouterr().err


def test_runs_of_other_code_are_not_seeds_of_one_method(trained, folder, forget, capsys):
    (folder / "seeds").mkdir()
    shutil.move(trained, folder / "seeds" / "a")
    module = folder / "outside_members.py"
    module.write_text(module.read_text() + "\n# a remark\n")
    assert run("train", *SHORT, *OUTSIDE, "--steps", "3", "--seed", "1", "--out", "seeds/b") == 0
    assert run("eval", "seeds") == 2
    assert "differ in their seeds alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--import", "outside_nowhere"], "Expected a module to import, got 'outside_nowhere'"),
        (["--import", "nowhere.py"], "nowhere.py, which is not there"),
        (["--import", "outside_bad"], "failed at line 2 of"),
        (["--import=[outside_members,outside_nowhere]"], "got 'outside_nowhere'"),
        (["--import", "outside_twice"], "The scaler 'svs' exists already"),
        (["--import", "outside_members", "--scaler", "outsid-scaler"], "Did you mean 'outside-sc"),
        (["--import", "outside_default", "--scaler", "unfit"], "that a YAML file can hold"),
        (["--import"], "--import needs a value"),
    ],
)
def test_wrong_imports_are_one_sentence(folder, capsys, words, message):
    (folder / "outside_bad.py").write_text("x = 1\ny = z\n")
    twice = MEMBERS.replace('"outside-scaler"', '"svs"')
    (folder / "outside_twice.py").write_text(twice)
    unfit = MEMBERS.partition("@HOSTS")[0].replace('"outside-scaler"', '"unfit"')
    unfit = unfit.replace("init: float = 10.0", "init: float = 10.0, kind: type = nn.ReLU")
    (folder / "outside_default.py").write_text(unfit)
    assert run("train", *SHORT, *words, "--out", "run") == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert not (folder / "run").exists()


def test_a_config_may_name_modules_and_the_command_line_adds_to_them(folder, capsys):
    (folder / "mine.yaml").write_text("dataset: points\nimports: [outside_members]\n")
    words = ["train", "--config", "mine.yaml", "--import", "json", "--import", "csv"]
    assert run(*words, "--print_config") == 0
    assert yaml.safe_load(capsys.readouterr().out)["imports"] == ["outside_members", "json", "csv"]
    (folder / "mine.yaml").write_text("dataset: points\nimports: outside_members\n")
    assert run("train", "--config", "mine.yaml") == 2
    assert "--import" in capsys.readouterr().err


def test_imports_leave_the_hash_of_other_configs_alone(as_user):
    plain = TrainConfig("glyphs", backbone="conv4")
    assert plain.hash == TrainConfig("glyphs", backbone="conv4", imports=[]).hash
    here, there = (TrainConfig("glyphs", imports=[f"/{x}/mine.py"]).hash for x in "ab")
    assert plain.hash != here == there
    assert short_name("/a/mine/__init__.py") == "mine/__init__.py"
    with pytest.raises(ValueError, match="Expected a list of modules as imports, got 'mine.py'"):
        TrainConfig("glyphs", imports="mine.py")


def test_ls_lists_members_from_outside(folder, capsys):
    assert run("ls", "scalers", "--import", "outside_members", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["scalers"]["outside-scaler"]
    assert listed == {"summary": "A scale of somebody else's.", "options": {"init": 10.0}}


def test_a_reader_from_outside_prepares_data(folder, capsys):
    (folder / "outside_reader.py").write_text(
        "from varscale.data.readers import READERS\n"
        "from varscale.data.readers.folders import Folder\n"
        '@READERS.register("outside-format")\n'
        "class Mine(Folder):\n"
        '    """Class folders of mine."""\n'
    )
    words = ["data", "prepare", "outside-data", "nowhere", "--format", "outside-format"]
    assert run(*words) == 2
    assert "Unknown format 'outside-format'" in capsys.readouterr().err
    assert run(*words, "--import", "outside_reader") != 0
    assert "Unknown format" not in capsys.readouterr().err


@pytest.fixture
def installed(folder, same_package, monkeypatch):
    """The members as an installed package, beside a broken one."""
    site = folder / "site"
    names = {
        "outside_package": ("outside_package:Outside{}", MEMBERS),
        "outside_broken": ("outside_broken:Outside{}", "import outside_lacking\n"),
    }
    for package, (value, code) in names.items():
        code = code.replace("@", "# @")  # offered, not registered
        info = site / f"{package}-1.2.dist-info"
        info.mkdir(parents=True)
        (site / f"{package}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        word = "offered" if package == "outside_package" else "broken"
        lines = [
            f"[varscale.{kind}s]\n{word}-{kind} = {value.format(kind.title())}\n"
            for kind in ("scaler", "host", "backbone")
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    return site


OFFERED = ["--scaler", "offered-scaler", "--host", "offered-host", "--backbone", "offered-backbone"]


def test_members_of_an_installed_package_are_found_by_name(installed, forget, folder, capsys):
    for family in ("scalers", "hosts", "backbones"):
        assert run("ls", family) == 0
        listed = capsys.readouterr().out.splitlines()
        assert f"offered-{family[:-1]}" in listed
        at = listed.index(f"broken-{family[:-1]}")
        assert "cannot be imported" in " ".join(listed[at : at + 4])
    forget()
    assert run("train", *SHORT, *OFFERED, "--metric", "cosine", "--steps", "3", "--out", "run") == 0
    (code,) = json.loads((folder / "run" / "provenance.json").read_text())["code"]
    assert (code["module"], code["version"]) == ("outside_package", "1.2")
    forget()
    capsys.readouterr()
    assert run("eval", "run", "--episodes", "10", "--json") == 0
    assert json.loads(capsys.readouterr().out)["scaler"] == "offered-scaler"
    assert run("train", *SHORT, "--scaler", "broken-scaler", "--out", "other") == 2
    said = capsys.readouterr().err
    assert "The scaler 'broken-scaler' of outside_broken 1.2 cannot be imported" in said
    assert run("train", *SHORT, "--initial", "3") == 2  # a hint does without the broken one
    assert "unknown option --initial" in capsys.readouterr().err


def test_nothing_imports_an_entry_point_that_is_not_asked_for(installed):
    code = (
        "import sys, varscale; from varscale.cli.main import main; main(['--help']); "
        "light = 'torch' in sys.modules; "
        "varscale.create(backbone='tiny', scaler='svs'); main(['doctor', '--json']); "
        "print(light, [m for m in sys.modules if m.startswith('outside')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "False []", result.stderr
