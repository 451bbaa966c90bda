"""Splits by class."""

from collections import Counter

import pytest

from varscale.data.split import split_classes


@pytest.mark.parametrize("shares", ["64/16", "a/b/c", "-1/1/1", "0/0/0"])
def test_wrong_shares_are_refused(shares):
    with pytest.raises(ValueError, match="such as 64/16/20"):
        split_classes(["a"], shares, 0)


def test_a_split_by_seed_depends_on_names_alone():
    names = [f"class{i}" for i in range(20)]
    split = split_classes(names, "10/5/5", 3)
    assert split_classes(names[::-1], "10/5/5", 3) == split
    assert Counter(split.values()) == {"train": 10, "val": 5, "test": 5}
    assert split_classes(names, "10/5/5", 4) != split
