import pytest
import torch
from conftest import random_episode

from varscale import Episode

X = torch.zeros(1, 2, 3)
Y = torch.tensor([[0, 1]])
NAN = torch.tensor([[[0.0, torch.nan, 0.0], [0.0, 0.0, 0.0]]])
INF = torch.tensor([[[0.0, 0.0, 0.0], [0.0, torch.inf, 0.0]]])


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (X[0], Y[0], X, Y, 2),
            r"\(task, support, ...\), got \(2, 3\). Pass one task as x\[None\]",
        ),
        ((X, Y[0], X, Y, 2), r"shape \(1, 2\), got \(2,\)"),
        ((X, Y, X, Y[:, :1], 2), "one label per query"),
        ((X, Y, X.expand(2, 2, 3), Y.expand(2, 2), 2), "got 1 and 2 tasks"),
        ((X, Y, torch.zeros(1, 2, 4), Y, 2), "items of the same shape"),
        ((X[:0], Y[:0], X[:0], Y[:0], 2), "at least one task"),
        ((X, Y.bool(), X, Y, 2), "integer support labels, got torch.bool"),
        ((X, Y, X, Y, 1), "at least 2 classes per task, got n_way=1"),
        ((X, Y, X, Y + 1, 2), r"query labels in 0..1 for 2 classes, got 1..2. Relabel"),
        ((X, Y, X, Y, 3), "none for class 2"),
        ((NAN, Y, X, Y, 2), "finite support items, got NaN or infinity in 1 of 2"),
        ((X, Y, INF, Y, 2), "finite query items, got NaN or infinity in 1 of 2"),
        ((X.byte(), Y, X.byte(), Y, 2), r"got torch.uint8. Convert images to 0..1"),
    ],
)
def test_wrong_input_is_refused_in_words(arguments, message):
    *tensors, n_way = arguments
    with pytest.raises(ValueError, match=message):
        Episode(*tensors, n_way=n_way)


def test_unlabelled_and_empty_queries_are_fine():
    assert Episode(X, Y, X, None, n_way=2).query_labels is None
    empty = Episode(X, Y, X[:, :0], Y[:, :0], n_way=2)
    assert repr(empty) == "Episode(1 task, 2-way, 2 supports, 0 queries, item 3)"


def test_to_moves_every_tensor():
    episode = random_episode(tasks=2).to("meta")
    assert episode.support.is_meta
    assert episode.query_labels.is_meta
    assert episode.n_way == 3
    assert episode.n_tasks == 2


def test_to_changes_the_type_of_items_alone():
    episode = Episode(X, Y.int(), X, Y.to(torch.uint8), n_way=2).to(dtype=torch.float64)
    assert episode.support.dtype == episode.query.dtype == torch.float64
    assert episode.support_labels.dtype == episode.query_labels.dtype == torch.int64


def test_an_episode_cannot_be_changed():
    with pytest.raises(AttributeError):
        random_episode().n_way = 2
