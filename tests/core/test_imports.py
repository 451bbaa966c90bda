import hashlib
import re
import sys

import pytest

from varscale.core.imports import fingerprints, import_located, locate_module, short_name


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A current folder, and modules that are forgotten after the test."""
    (tmp_path / "outside_file.py").write_text("VALUE = 1\n")
    package = tmp_path / "outside_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("from outside_package import other\n")
    (package / "other.py").write_text("VALUE = 2\n")
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if "outside" in name or name.startswith("json_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("outside_file", "outside_file.py"),
        ("outside_file.py", "outside_file.py"),
        ("./outside_file.py", "outside_file.py"),
        ("outside_package", "outside_package/__init__.py"),
        ("./outside_package", "outside_package/__init__.py"),
        ("outside_package.inner", "outside_package/inner.py"),
    ],
)
def test_what_is_in_the_current_folder_is_found_from_another(folder, monkeypatch, name, file):
    located = locate_module(name)
    assert located == str(folder.resolve() / file)
    monkeypatch.chdir("/")
    module = import_located(located)
    assert module.__file__ == located
    assert module.__name__ == file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert import_located(located) is module  # its code runs once
    assert str(folder) not in sys.path


def test_an_installed_module_keeps_its_name():
    assert locate_module("json") == "json"
    assert import_located("json") is sys.modules["json"]
    assert short_name("json.decoder") == "json.decoder"


def test_a_file_with_the_name_of_another_module_does_not_replace_it(folder):
    import json

    (folder / "json.py").write_text("VALUE = 3\n")
    module = import_located(locate_module("json.py"))
    assert module.VALUE == 3
    assert sys.modules["json"] is json


def test_a_file_that_is_loaded_under_any_name_is_not_executed_again(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    import outside_file

    assert import_located(str(folder / "outside_file.py")) is outside_file


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("outside_nowhere", "Expected a module to import, got 'outside_nowhere', which is neither"),
        ("outside_nowhere.inner", "got 'outside_nowhere.inner', which is neither in"),
        ("nowhere.py", r"Expected a .py file to import, got .*nowhere.py, which is not there"),
        ("../", r"Expected a .py file to import, got .*, which is not a .py file"),
        ("", "Importing  failed: ValueError"),
    ],
)
def test_a_missing_module_is_one_sentence(name, message):
    with pytest.raises(ValueError, match=message):
        import_located(locate_module(name))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\ny = z\n", "failed at line 2 of .*outside_bad.py: NameError: name 'z'"),
        ("import outside_lacking", "line 1 .*ModuleNotFoundError: No module named 'outside_lack"),
        ("x = (", "SyntaxError: '.' was never closed"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_says_where(folder, code, message):
    (folder / "outside_bad.py").write_text(code)
    for _ in range(2):  # nothing of it stays behind
        with pytest.raises(ValueError, match=message) as caught:
            import_located(locate_module("outside_bad"))
        assert len(str(caught.value).splitlines()) == 1


def test_fingerprints_tell_code_and_nothing_else(folder):
    names = [locate_module("outside_file"), locate_module("outside_package.inner"), "numpy"]
    file, package, numpy = fingerprints(names)
    assert file == {
        "module": "outside_file.py",
        "sha256": hashlib.sha256(b"VALUE = 1\n").hexdigest(),
    }
    assert package["module"] == "inner.py"
    assert re.fullmatch(r"\d+\.\d+.*", numpy["version"])
    (folder / "outside_package" / "other.py").write_text("VALUE = 3\n")  # which inner imports
    again = fingerprints(names)
    assert [a == b for a, b in zip([file, package, numpy], again, strict=True)] == [
        True,
        False,
        True,
    ]
