"""Open a prepared dataset, take a split, make episodes."""

import forms
import pytest
import torch

from varscale.data import Dataset, EpisodeSampler
from varscale.data.prepare import prepare
from varscale.data.readers import ReaderOptions


def test_episodes_from_a_prepared_dataset(tmp_path, root):
    prepare(
        "mini", forms.csv_zip(tmp_path / "s"), ReaderOptions(size=8), form="miniimagenet", root=root
    )
    split = Dataset.open("mini", root)["train"]
    assert len(split) == 12
    sampler = EpisodeSampler(split.labels, n_way=3, n_shot=1, n_query=3)
    episode = split.episode(sampler.batch(0, 5))
    assert episode.support.shape == (5, 3, 3, 8, 8)
    assert episode.support.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    reds = (255 * episode.query[:, :, 0, 0, 0]).round().long()
    classes = sampler.batch(0, 5).classes
    expected = torch.gather(classes, 1, episode.query_labels)
    assert torch.equal((reds - 1) // forms.PER_CLASS, expected)


def test_splits_that_are_not_there(tmp_path, root):
    for name in ("a", "b"):
        forms.write(tmp_path / "two" / name / "x.png", forms.encoded(forms.picture(1)))
    prepare("two", tmp_path / "two", ReaderOptions(split="1/0/0", size=8), root=root)
    dataset = Dataset.open("two", root)
    with pytest.raises(ValueError, match="has no val classes"):
        dataset["val"]
    with pytest.raises(ValueError, match="Unknown split 'tset'.*Did you mean 'test'"):
        dataset["tset"]


def test_unknown_datasets_name_the_known(tmp_path, root):
    with pytest.raises(ValueError, match="Prepare it: varscale data prepare mini SOURCE"):
        Dataset.open("mini", root)
    prepare(
        "mini", forms.csv_zip(tmp_path / "s"), ReaderOptions(size=8), form="miniimagenet", root=root
    )
    with pytest.raises(ValueError, match="Did you mean 'mini'"):
        Dataset.open("minni", root)
