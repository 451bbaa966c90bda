"""Folders and archives as sources."""

import zipfile

import forms
import pytest

from varscale.data.prepare import prepare
from varscale.data.readers import ReaderOptions


@pytest.mark.parametrize(
    "member", ["../evil.png", "/etc/evil.png", "a/../../evil.png", "C:/evil.png"]
)
def test_archives_that_lead_out_of_themselves_are_refused(member, tmp_path, root):
    with zipfile.ZipFile(tmp_path / "slip.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(member), forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="leads out of it"):
        prepare("mine", tmp_path / "slip.zip", root=root)


def test_archives_that_unpack_to_too_much_are_refused(tmp_path, root, monkeypatch):
    monkeypatch.setattr("varscale.data.tree.MAX_FILE", 100)
    with pytest.raises(ValueError, match="at most 100 bytes in a file, got"):
        prepare("miniimagenet", forms.csv_zip(tmp_path / "s"), root=root)


def test_links_are_followed_and_loops_are_not(tmp_path, root):
    forms.write(tmp_path / "elsewhere" / "0.png", forms.encoded(forms.picture(1)))
    forms.write(tmp_path / "s" / "dogs" / "0.png", forms.encoded(forms.picture(2)))
    (tmp_path / "s" / "cats").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "s" / "again").symlink_to(tmp_path / "s")
    (tmp_path / "s" / "nowhere").symlink_to(tmp_path / "missing")
    manifest = prepare("mine", tmp_path / "s", ReaderOptions(split="1/0/0"), root=root)
    assert sorted(manifest.class_names) == ["cats", "dogs"]


def test_archives_with_a_file_twice_are_refused(tmp_path, root):
    (tmp_path / "s").mkdir()
    for name in ("one", "two"):
        with zipfile.ZipFile(tmp_path / "s" / f"{name}.zip", "w") as archive:
            archive.writestr("a/0.png", forms.encoded(forms.picture(1)))
    with pytest.raises(ValueError, match="every file once .* got a/0.png twice"):
        prepare("mine", tmp_path / "s", root=root)
