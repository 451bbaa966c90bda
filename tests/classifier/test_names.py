"""Names of classes as examples of them (M43)."""

import numpy as np
import pytest

from varscale import FewShotClassifier

CLASSES = np.array([f"class {k:02}" for k in range(24)])


@pytest.fixture(scope="module")
def world():
    """Class centres, names that lie elsewhere and are noisy, and a prior of the first 16."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(24, 32))
    names = centres + 3 + 0.7 * draw.normal(size=(24, 32))
    labels = np.repeat(np.arange(16), 30)
    x = centres[labels] + 1.2 * draw.normal(size=(480, 32))
    base = FewShotClassifier().fit(
        x, CLASSES[labels], names=dict(zip(CLASSES[:16], names[:16], strict=True))
    )
    return draw, centres, dict(zip(CLASSES, names, strict=True)), base.prior_


def sample(world, shots):
    draw, centres = world[:2]
    labels = np.repeat(np.arange(16, 24), shots)
    return centres[labels] + 1.2 * draw.normal(size=(len(labels), 32)), CLASSES[labels]


def some(names, first, last):
    return {c: names[c] for c in CLASSES[first:last]}


def test_names_help_at_one_shot(world):
    names, prior = world[2:]
    few, queries = sample(world, 1), sample(world, 200)
    plain = FewShotClassifier(prior=prior).fit(*few)
    named = FewShotClassifier(prior=prior).fit(*few, names=some(names, 16, 24))
    assert named.score(*queries) > plain.score(*queries) + 0.02
    assert prior.name_gap is not None


def test_a_name_at_the_class_mean_is_one_more_example(world):
    prior = world[3]
    x, y = sample(world, 3)
    names = {c: x[y == c].mean(0) for c in np.unique(y)}
    clf = FewShotClassifier(prior=prior).fit(x, y, names=names)
    assert (clf.counts_ == 3).all()
    assert clf.task_.place.count.tolist() == [4.0] * 8


def test_a_class_without_examples_is_known_by_its_name(world):
    names, prior = world[2:]
    x, y = sample(world, 2)
    kept = y != CLASSES[20]
    clf = FewShotClassifier(prior=prior).fit(x[kept], y[kept], names=some(names, 16, 24))
    queries, truth = sample(world, 100)
    mine = truth == CLASSES[20]
    assert clf.counts_.tolist() == [2, 2, 2, 2, 0, 2, 2, 2]
    assert clf.score(queries[mine], truth[mine]) > 0.3  # chance is 1 in 8
    assert np.isfinite(clf.predict_proba(queries)).all()
    assert clf.predict_set(queries, 0.2).shape == (800, 8)


def test_without_names_of_base_classes_the_task_tells_where_they_lie(world):
    names, _prior = world[2:]
    few, queries = sample(world, 2), sample(world, 100)
    lifted = {c: name + 100 for c, name in some(names, 16, 24).items()}
    labels = np.repeat(np.arange(16), 30)
    x = world[1][labels] + 1.2 * np.random.default_rng(1).normal(size=(480, 32))
    other = FewShotClassifier().fit(x, CLASSES[labels]).prior_
    near = FewShotClassifier(prior=other).fit(*few, names=some(names, 16, 24))
    far = FewShotClassifier(prior=other).fit(*few, names=lifted)
    np.testing.assert_allclose(
        near.predict_proba(queries[0]), far.predict_proba(queries[0]), atol=1e-6
    )


def test_parts_and_files_keep_names(world, tmp_path):
    names, prior = world[2:]
    x, y = sample(world, 2)
    whole = FewShotClassifier(prior=prior).fit(x, y, names=some(names, 16, 24))
    parts = FewShotClassifier(prior=prior).fit(x[:8], y[:8], names=some(names, 16, 20))
    parts.partial_fit(x[8:], y[8:], names=some(names, 20, 24))
    assert np.array_equal(parts.predict_proba(x), whole.predict_proba(x))
    whole.save(tmp_path / "m.safetensors")
    loaded = FewShotClassifier.load(tmp_path / "m.safetensors")
    assert np.array_equal(loaded.predict_proba(x), whole.predict_proba(x))
    assert np.array_equal(loaded.prior_.name_gap, prior.name_gap)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"class 16": np.zeros(3)}, "an embedding of 32 finite numbers as the name of 'class 16'"),
        ({"class 16": np.full(32, np.nan)}, "finite numbers"),
        ({5: np.zeros(32)}, "names of classes like"),
        (["class 16"], "Expected names as a dict from each class .* got list"),
    ],
)
def test_wrong_names_raise(as_user, world, names, message):
    with pytest.raises(ValueError, match=message):
        FewShotClassifier(prior=world[3]).fit(*sample(world, 2), names=names)


def test_a_class_that_is_nearly_called_like_another_is_told(world):
    names, prior = world[2:]
    few, named = sample(world, 2), some(names, 16, 24)
    FewShotClassifier(prior=prior).fit(*few, names=named)  # warnings are errors
    FewShotClassifier(prior=prior).fit(*few, names={**named, "other": named["class 16"]})
    other = {**named, "class 16++": named["class 16"]}
    del other["class 16"]
    FewShotClassifier(prior=prior).fit(*few, names=other)  # as C++ and C
    named["Class 16"] = named.pop("class 16")
    for names in (named, {"CLASS_16": named["Class 16"], "class 99": named["class 17"]}):
        with pytest.warns(UserWarning, match="no name: '(Class |CLASS_)16' and 'class 16'. If"):
            FewShotClassifier(prior=prior).fit(*few, names=names)
