import json

import forms
import numpy as np
import pytest
from PIL import Image

from varscale.cli.main import main
from varscale.data import Dataset


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VARSCALE_HOME", str(tmp_path / "home"))


def run(*arguments):
    try:
        return main([str(a) for a in arguments])
    except SystemExit as stop:
        return stop.code


def test_the_way_of_a_dataset(tmp_path, capsys):
    source = forms.csv_zip(tmp_path / "s")
    assert run("data", "prepare", "miniimagenet", source, "--size", "8") == 0
    assert "28 images of 8x8x3, classes 3/2/2 (train/val/test)" in capsys.readouterr().out
    assert run("data", "prepare", "miniimagenet", source, "--size", "8", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["items"], facts["classes"], facts["skipped"]) == (28, "3/2/2", [])
    assert run("data", "prepare", "miniimagenet", source, "--size", "8") == 0
    assert "already prepared" in capsys.readouterr().out
    assert run("data", "list") == 0
    assert "miniimagenet" in capsys.readouterr().out
    assert run("data", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["miniimagenet"]["hash"] == facts["hash"]
    assert run("data", "check", "miniimagenet") == 0
    assert facts["hash"] in capsys.readouterr().out
    assert run("data", "check", "miniimagenet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    sheet = tmp_path / "sheet.png"
    assert run("data", "show", "miniimagenet", "--out", sheet) == 0
    with Image.open(sheet) as image:
        assert image.height > 7 * 28
    assert run("data", "show", "miniimagenet", "--out", sheet, "--json") == 0


def test_what_was_left_out_is_listed(tmp_path, capsys):
    source = forms.split_class_folders(tmp_path / "s")
    (source / "train" / "n01" / "n0100000000.png").write_bytes(b"broken")
    assert run("data", "prepare", "mine", source) == 2
    assert "n0100000000.png in" in capsys.readouterr().err
    assert run("data", "prepare", "mine", source, "--skip_bad", "true") == 0
    captured = capsys.readouterr()
    assert "left out: train/n01/n0100000000.png" in captured.err
    assert "27 images" in captured.out
    assert "1 left out" in captured.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "mine"], "Expected a source"),
        (["prepare"], "NAME and [SOURCE]; NAME is missing"),
        (["prepare", "mine", "nowhere"], "got nothing there"),
        (["prepare", "mine", "nowhere", "--format", "foldr"], "Did you mean 'folder'"),
        (["prepare", "mine", "nowhere", "--sise", "8"], "Did you mean --size?"),
        (["prepare", "mine", "nowhere", "--size", "big"], "size"),
        (["check", "mine"], "no prepared dataset 'mine'"),
        (["show", "mine"], "no prepared dataset 'mine'"),
        (["download", "mine"], "Unknown dataset to download"),
        (["lst"], "Did you mean varscale data list?"),
        ([], "Expected a command"),
    ],
)
def test_wrong_input_is_one_clear_sentence_and_status_2(arguments, message, capsys):
    assert run("data", *arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_embeddings_cannot_be_shown(tmp_path, capsys):
    import numpy as np

    np.savez(tmp_path / "e.npz", X=np.ones((4, 2)), y=[0, 0, 1, 1])
    assert run("data", "prepare", "mine", tmp_path / "e.npz") == 0
    assert run("data", "show", "mine") == 2
    assert "has embeddings" in capsys.readouterr().err
    assert run("data", "prepare", "mine", tmp_path / "e.npz", "--seed", "1") == 0


def test_a_damaged_dataset_does_not_hide_the_others(tmp_path, capsys):
    for name in ("one", "two"):
        run("data", "prepare", name, forms.csv_zip(tmp_path / name), "--size", "8")
    manifest = tmp_path / "home" / "data" / "one" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"name": "one"', '"name": "zzz"'))
    capsys.readouterr()
    assert run("data", "list", "--json") == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)) == ["two"]
    assert "one/manifest.json is damaged" in captured.err
    manifest.write_text('{"format": 99}')
    assert run("data", "check", "one") == 2
    assert "another version wrote it, in format 99" in capsys.readouterr().err


def test_what_the_system_refuses_is_said_without_a_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VARSCALE_HOME", str(tmp_path / "file"))
    assert run("data", "prepare", "mini", forms.csv_zip(tmp_path / "s")) == 1
    assert "Not a directory" in capsys.readouterr().err


def test_ctrl_c_is_one_line(tmp_path, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("varscale.cli.data.prepare", interrupt)
    assert run("data", "prepare", "mini", forms.csv_zip(tmp_path / "s")) == 130
    assert "interrupted" in capsys.readouterr().err


def test_unwritable_sheet(tmp_path, capsys):
    run("data", "prepare", "mini", forms.csv_zip(tmp_path / "s"), "--format", "miniimagenet")
    mine = tmp_path / "holiday.png"
    Image.new("RGB", (9, 9)).save(mine)
    before = mine.read_bytes()
    for file, said in (
        (tmp_path / "no" / "folder.png", "in an existing folder"),
        (tmp_path / "sheet.jpg", "ending in .png"),
        (mine, "or a sheet that varscale wrote"),
    ):
        assert run("data", "show", "mini", "--out", file) == 2
        assert said in capsys.readouterr().err
    assert mine.read_bytes() == before


def test_a_dataset_that_is_not_prepared_is_one_command_away(tmp_path, capsys, monkeypatch):
    pytest.importorskip("lightning_fabric", reason="needs the extra 'train'")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name, command in {
        "photos": "varscale data prepare photos photos",
        "miniimagenet32": "data prepare miniimagenet32 SOURCE --format miniimagenet --size 32 (",
        "mine": "varscale data prepare mine SOURCE (",
    }.items():
        assert run("train", "--dataset", name) == 2
        captured = capsys.readouterr().err
        assert command in captured
        assert "Did you mean" not in captured
    assert run("train", "--dataset", "glyfs") == 2
    assert "Did you mean 'glyphs'?" in capsys.readouterr().err
    assert run("reproduce", "table2", "--results", "r", "--runs", "q") == 2
    assert "--format miniimagenet --size 32" in capsys.readouterr().err


def test_a_class_that_is_too_small_is_named(tmp_path, capsys):
    source = forms.split_class_folders(tmp_path / "s")
    assert run("data", "prepare", "mine", source, "--size", "8") == 0
    words = ("--n_way", "2", "--backbone", "tiny", "--backbone_options.in_channels", "3")
    assert run("train", "--dataset", "mine", *words, "--out", tmp_path / "run") == 2
    assert "needs 16 items per class; class 'n0" in capsys.readouterr().err


def test_a_dataset_of_few_classes_says_what_to_do(tmp_path, capsys):
    pytest.importorskip("lightning_fabric", reason="needs the extra 'train'")
    rows = np.repeat(np.arange(6), 12)
    np.savez(tmp_path / "few.npz", embeddings=np.eye(6, dtype=np.float32)[rows], labels=rows)
    few, words = (
        str(tmp_path / "few.npz"),
        ("--backbone", "linear", "--n_way", "3", "--n_query", "2"),
    )
    train = ("train", "--dataset", "few", *words, "--steps", "2", "--out")
    assert run("data", "prepare", "few", few) == 0
    assert "With 1 val and 1 test classes no tasks can be drawn" in capsys.readouterr().out
    assert run(*train, tmp_path / "run") == 2
    assert "1 val classes to validate on, and a task needs two" in capsys.readouterr().err
    assert run("data", "prepare", "few", few, "--split", "67/33/0", "--force") == 0
    assert "With 0 test classes no tasks can be drawn" in capsys.readouterr().out
    assert run(*train, tmp_path / "run", "--val_every", "2", "--val_episodes", "3") == 0
    assert "in validation, 2-way" in capsys.readouterr().out
    assert run("eval", tmp_path / "run") == 2
    assert "has no test classes. Use --split train or --split val" in capsys.readouterr().err
    short = ("--n_query", "3", "--episodes", "5")
    assert run("eval", tmp_path / "run", "--split", "val", *short) == 0
    assert "2-way" in capsys.readouterr().out
    rows = np.repeat(np.arange(10), 12)
    np.savez(few, embeddings=np.eye(10, dtype=np.float32)[rows], labels=rows)
    assert run("data", "prepare", "few", few, "--split", "50/20/30", "--force") == 0
    assert run(*train, tmp_path / "two", "--val_every", "2", "--val_episodes", "3") == 0
    assert "in validation, 2-way" in capsys.readouterr().out
    assert run("eval", tmp_path / "two", *short) == 0
    assert "3-way" in capsys.readouterr().out
    assert run("data", "prepare", "few", few, "--split", "60/20/20", "--force") == 0
    for name, every in (("both", "2"), ("neither", "0")):
        words = ("--val_every", every, "--val_episodes", "3")
        assert run(*train, tmp_path / name, *words) == 0
        assert "Test it: varscale eval" in capsys.readouterr().out
        assert run("eval", tmp_path / name, *short) == 0
        assert "2-way" in capsys.readouterr().out


def test_a_dataset_from_another_source_is_not_replaced(tmp_path, capsys):
    for folder in ("first", "second"):
        forms.split_class_folders(tmp_path / folder)
    prepare = ("data", "prepare", "mine")
    assert run(*prepare, tmp_path / "first", "--size", "8") == 0
    assert run(*prepare, tmp_path / "first", "--size", "10") == 0
    assert run(*prepare, tmp_path / "second", "--size", "8") == 2
    assert f"items from {tmp_path / 'first'}. Choose another name" in capsys.readouterr().err
    assert Dataset.open("mine").items.shape[1] == 10
    assert run(*prepare, tmp_path / "second", "--size", "8", "--force") == 0
    assert Dataset.open("mine").items.shape[1] == 8
