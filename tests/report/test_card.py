"""Cards of fitted classifiers."""

import errno

import numpy as np
import pytest
from conftest import classes

from varscale import FewShotClassifier
from varscale.core import files
from varscale.items import Columns, ItemModel
from varscale.report.card import MARK, card, write_card


def fitted(**more):
    x, y = classes(n_classes=3, per_class=3)
    keep = np.r_[0, 3:9]  # one example of the first
    names = np.array(["a|b", "<c>", "d\ne"])[y]
    return ItemModel(FewShotClassifier().fit(x[keep], names[keep]), **more)


def section(text, title):
    return text.partition(f"## {title}\n\n")[2].partition("\n\n## ")[0]


def test_a_card_tells_data_classes_figures_and_limits():
    source = {"name": "t.csv", "items": 1300, "unlabelled": 1290, "unreadable": 3}
    model = fitted(columns=Columns(text="question"), sources=[source])
    facts = {"spec": "minilm", "identity": "abcdef0123456789" * 4}
    text = card(model, "m.safetensors", embedder=facts)
    assert text.startswith(MARK)
    assert "pipeline_tag: text-classification\n" in text.split("---\n")[1]
    assert "| t.csv | 1,300 | 1,290 | 3 |" in section(text, "Data")
    assert section(text, "Classes").splitlines()[2:] == [
        "| &lt;c> | 3 |", "| a\\|b | 1 |", "| d e | 3 |"
    ]  # fmt: skip
    assert "minilm, 16 numbers" in section(text, "Embedder")
    assert "settings: abcdef0123456789. No" in section(text, "Embedder")
    alpha = model.classifier.task_.alpha.item()
    assert f"| scale of these classes | {alpha:.3g} |" in section(text, "Figures")
    limits = section(text, "Limits")
    assert "1 of 3 classes have fewer than two examples" in limits
    assert "the beginning of each text" in limits
    assert "cannot tell items of other classes" in limits
    assert "licence of the embedder's weights" in section(text, "Licence")
    assert "varscale predict m.safetensors new.csv" in section(text, "Use")


def test_a_card_of_a_graph_says_that_it_has_no_examples():
    x, y = classes(n_classes=12, per_class=6)
    model = ItemModel(FewShotClassifier().fit(x, y))
    text = card(model, "m.onnx", reject=0.1)
    assert "The file has no examples." in text
    assert "Personal data" not in text
    assert "| shares above which `--reject` works | 0.0769 |" in text  # 1 / 13
    assert "| share of known items that may be called unknown | 0.1 |" in text
    assert "does not tell what data" in section(text, "Data")
    assert "embeddings of 16 numbers" in section(text, "Embedder")


def test_only_a_card_is_overwritten_and_never_by_half(tmp_path, monkeypatch):
    path, model = tmp_path / "README.md", fitted()
    path.write_text("# Mine\n")
    with pytest.raises(
        ValueError, match="or a card that varscale wrote, got .* Choose another name."
    ):
        write_card(path, model, tmp_path / "m.safetensors")
    assert path.read_text() == "# Mine\n"
    path.unlink()
    write_card(path, model, tmp_path / "m.safetensors")
    before = path.read_text()
    write_card(path, model, tmp_path / "n.safetensors")
    assert path.read_text() == before.replace("m.safetensors", "n.safetensors")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_card(path, model, tmp_path / "o.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["README.md"]
    assert "n.safetensors" in path.read_text()
    for wrong in (tmp_path, tmp_path / "no" / "README.md"):
        with pytest.raises(ValueError, match="in an existing folder"):
            write_card(wrong, model, tmp_path / "m.safetensors")


def test_foreign_text_stays_text():
    x, y = classes(n_classes=3, per_class=3)
    named = np.array(["a\\|b", "![t](http://evil/t.png)", "`c\ud800"])[y]
    source = {"name": "[x](y)\n\n## Licence", "items": 9, "unlabelled": 0, "unreadable": 0}
    model = ItemModel(FewShotClassifier().fit(x, named), sources=[source])
    evil = "`\n\n## Licence\n\nMIT <script>alert(1)</script>"
    text = card(model, f"m{evil}.onnx", embedder={"spec": f"minilm{evil}", "identity": evil})
    plain = "\\` ## Licence MIT &lt;script>alert(1)&lt;/script>"
    assert f"\n# m{plain}.onnx\n" in text
    assert section(text, "Embedder").startswith(f"minilm{plain}, 16 numbers")
    assert text.count("\n## Licence") == 1
    assert "varscale predict 'm` ## Licence MIT <script>alert(1)</script>.onnx' new" in text
    assert text.count("<script") == 1  # inside a fence
    assert section(text, "Classes").splitlines()[2:] == [
        "| !\\[t](http://evil/t.png) | 3 |", "| \\`c? | 3 |", "| a\\\\\\|b | 3 |"
    ]  # fmt: skip
    assert "| \\[x](y) ## Licence | 9 | 0 | 0 |" in section(text, "Data")


def test_a_card_fits_nothing_again(monkeypatch):
    def fit(*given):
        raise AssertionError

    model = fitted()
    monkeypatch.setattr("varscale.classifier.advice.fit_task", fit)
    assert "accuracy on examples left out" in section(card(model, "m.onnx"), "Figures")
