"""`scaled` against the real losses of pytorch-metric-learning and sentence-transformers."""

import copy
import math
import os

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import distances, losses
from torch import nn

from varscale.plug import LogitScale, ScaledLoss, scaled
from varscale.plug.logit_scale import STRIDE

WAY, DIM, ALPHA = 4, 8, 7.0
CLASSES = {"num_classes": WAY, "embedding_size": DIM}

KNOWN = {
    "ArcFaceLoss": (CLASSES, "scale"),
    "SubCenterArcFaceLoss": (CLASSES, "scale"),
    "CosFaceLoss": (CLASSES, "scale"),
    "NormalizedSoftmaxLoss": (CLASSES, "temperature"),
    "NTXentLoss": ({}, "temperature"),
    "SupConLoss": ({}, "temperature"),
}
MARGINS = ["ArcFaceLoss", "SubCenterArcFaceLoss", "CosFaceLoss"]
OPTIONS = {
    **{name: options for name, (options, _) in KNOWN.items()},
    **dict.fromkeys(
        ["LargeMarginSoftmaxLoss", "SphereFaceLoss", "ProxyAnchorLoss", "ProxyNCALoss",
         "SoftTripleLoss"], CLASSES),
    "P2SGradLoss": {"descriptors_dim": DIM, "num_classes": WAY},
    "ManifoldLoss": {"l": DIM},
    "HistogramLoss": {"n_bins": 5},
    "RankedListLoss": {"margin": 0.5, "Tn": 0.1},
}  # fmt: skip
ABSTRACT = ["BaseLossWrapper", "BaseMetricLossFunction", "GenericPairLoss",
            "EmbeddingRegularizerMixin", "WeightRegularizerMixin"]  # fmt: skip
WRAPPERS = ["CrossBatchMemory", "MultipleLosses", "SelfSupervisedLoss"]
OTHERS = ["ThresholdConsistentMarginLoss"]
NAMES = sorted(name for name in dir(losses) if isinstance(getattr(losses, name), type))


def build(name, **more):
    torch.manual_seed(0)
    options = OPTIONS.get(name, {})
    return getattr(losses, name)(**options, **more).double()


def own(name, alpha=ALPHA):
    """The package's own loss at a scale."""
    option = KNOWN[name][1]
    return build(name, **{option: alpha if option == "scale" else 1 / alpha})


@pytest.fixture
def batch(generator):
    labels = torch.arange(12) % WAY
    centres = torch.randn(WAY, DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(12, DIM, generator=generator, dtype=torch.float64)
    return centres[labels] + noise, labels


def fixed():
    return LogitScale(init=ALPHA).double()


@pytest.mark.parametrize("name", KNOWN)
def test_at_a_scale_it_is_the_packages_own_loss(batch, name):
    theirs = own(name)
    for constant in (1.0, 30.0):  # whatever it was made with
        ours = scaled(own(name, constant), fixed())
        value = ours(*batch)
        torch.testing.assert_close(value - ours.scale.kl(), theirs(*batch))
        assert ours.scale.seen.item() == 12


@pytest.mark.parametrize("name", KNOWN)
def test_its_gradients_are_those_of_the_packages_own_loss(batch, name):
    x, labels = batch
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    ours, theirs = scaled(own(name, 1.0), fixed()), own(name)
    ours(leaves[0], labels).backward()
    theirs(leaves[1], labels).backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    for a, b in zip(ours.loss.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("name", KNOWN)
def test_the_gradient_of_the_scale(batch, name):
    """That of the loss in log alpha, by finite differences; of the plain cosines for a margin."""
    ours = scaled(own(name), LogitScale(init=ALPHA, rows=1e12).double())  # almost no KL
    ours(*batch).backward()

    def value(alpha):
        if name not in MARGINS:
            return own(name, alpha)(*batch).item()
        return F.cross_entropy(alpha * own(name).get_cosine(batch[0]), batch[1]).item()

    h = 1e-5
    slope = (value(ALPHA * math.exp(h)) - value(ALPHA * math.exp(-h))) / (2 * h)
    assert STRIDE * ours.scale.shift.grad.item() == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("name", KNOWN)
def test_training_moves_its_scale(batch, name):
    x, labels = batch
    loss_function = scaled(own(name))
    torch.manual_seed(0)
    network = nn.Linear(DIM, DIM, dtype=torch.float64)
    optimizer = torch.optim.Adam([*network.parameters(), *loss_function.parameters()], lr=1e-2)
    values, scales = [], []
    for _ in range(150):
        optimizer.zero_grad()
        loss = loss_function(network(x), labels)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
        scales.append(loss_function.scale.alpha.item())
    if name not in MARGINS:  # with a margin, a larger scale makes the loss itself larger
        assert values[-1] < values[0]
    assert scales[-1] / scales[0] > 1.2


@pytest.mark.parametrize("name", KNOWN)
def test_a_copy_has_its_own_scale(batch, name):
    ours = scaled(own(name), fixed())
    twin = copy.deepcopy(ours)
    with torch.no_grad():
        twin.scale.shift.fill_(math.log(2) / STRIDE)
    torch.testing.assert_close(twin(*batch) - twin.scale.kl(), own(name, 2 * ALPHA)(*batch))
    torch.testing.assert_close(ours(*batch) - ours.scale.kl(), own(name)(*batch))
    fresh = scaled(own(name)).double()
    fresh.load_state_dict(twin.state_dict())
    torch.testing.assert_close(fresh(*batch) - fresh.scale.kl(), own(name, 2 * ALPHA)(*batch))


@pytest.mark.parametrize("name", KNOWN)
def test_twice_is_an_error(name):
    loss = own(name)
    scaled(loss)
    with pytest.raises(ValueError, match=f"got {name} with a learned scale already"):
        scaled(loss)


def test_losses_that_share_a_distance_do_not_share_the_scale(batch):
    distance = distances.CosineSimilarity()
    first = losses.NTXentLoss(temperature=0.1, distance=distance)
    second = losses.SupConLoss(temperature=0.1, distance=distance)
    before = second(*batch)
    scaled(first)
    assert torch.equal(second(*batch), before)


@pytest.mark.parametrize("name", MARGINS)
def test_margin_losses_take_the_dtype_of_the_embeddings(batch, name):
    ours = scaled(build(name).float())
    assert ours(*batch).dtype == torch.float64
    half = scaled(build(name).float())(batch[0].bfloat16(), batch[1])
    assert half.isfinite()


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")  # numpy on the package
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ABSTRACT + WRAPPERS + OTHERS])
def test_every_loss_is_taken_over_or_refused(batch, name):
    loss = build(name)
    if name in KNOWN:
        assert isinstance(scaled(loss), ScaledLoss)
        return
    before = {key: str(value) for key, value in vars(loss).items()}
    with pytest.raises(ValueError, match=f"Expected one of .*, got {name}. In a loss of your own"):
        scaled(loss)
    assert before == {key: str(value) for key, value in vars(loss).items()}


@pytest.mark.parametrize(
    "loss",
    [
        losses.CrossBatchMemory(losses.NTXentLoss(), embedding_size=DIM),
        losses.SelfSupervisedLoss(losses.NTXentLoss()),
        nn.CrossEntropyLoss(),
        F.cross_entropy,
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_is_no_known_loss(loss):
    with pytest.raises(ValueError, match=f"Expected one of .*, got {type(loss).__name__}"):
        scaled(loss)


@pytest.mark.parametrize(
    "distance",
    [
        distances.LpDistance(),
        distances.DotProductSimilarity(normalize_embeddings=False),
        distances.CosineSimilarity(power=2),
        distances.CosineSimilarity(p=1),
    ],
    ids=["lp", "dot", "power", "norm"],
)
def test_other_distances(distance):
    loss = losses.NTXentLoss(distance=distance)
    with pytest.raises(ValueError, match=r"Give it distance=CosineSimilarity\(\)"):
        scaled(loss)
    assert loss.temperature == 0.07


# sentence-transformers


@pytest.fixture(scope="module")
def ranking():
    """The losses of sentence-transformers, for a model whose sentences are vectors."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return pytest.importorskip(
        "sentence_transformers.sentence_transformer.losses", reason="no sentence-transformers"
    )


class Vectors(nn.Sequential):
    """Stands for a model of sentences: its features are embeddings already."""

    def forward(self, features):
        return {"sentence_embedding": features["x"]}


@pytest.fixture
def pairs(generator):
    anchors, positives = torch.randn(2, 6, DIM, generator=generator, dtype=torch.float64)
    return [{"x": anchors}, {"x": anchors + positives}]


SYMMETRIC = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}


@pytest.mark.parametrize("options", [{}, SYMMETRIC], ids=["one way", "both ways"])
def test_ranking_at_a_scale_is_the_packages_own_loss(ranking, pairs, options):
    make = ranking.MultipleNegativesRankingLoss
    ours = scaled(make(Vectors(), scale=3.0, **options), fixed())
    theirs = make(Vectors(), scale=ALPHA, **options)
    torch.testing.assert_close(ours(pairs, None) - ours.scale.kl(), theirs(pairs, None))
    twin = copy.deepcopy(ours)
    with torch.no_grad():
        twin.scale.shift.fill_(1.0)
    torch.testing.assert_close(ours(pairs, None) - ours.scale.kl(), theirs(pairs, None))
    assert ours.loss.get_config_dict()["similarity_fct"] == "scaled_cos_sim"  # for model cards


def test_ranking_losses_that_are_refused(ranking):
    from sentence_transformers.util import dot_score

    make = ranking.MultipleNegativesRankingLoss
    for loss, message in [
        (make(Vectors(), similarity_fct=dot_score), "got similarity_fct=dot_score"),
        (
            make(Vectors(), hardness_mode="in_batch_negatives", hardness_strength=1.0),
            "Make the loss without it",
        ),
        (ranking.CoSENTLoss(Vectors()), "got CoSENTLoss"),
        (ranking.CachedMultipleNegativesRankingLoss(Vectors(nn.Identity())), "got CachedMultiple"),
    ]:
        with pytest.raises(ValueError, match=message):
            scaled(loss)
    once = make(Vectors())
    scaled(once)
    with pytest.raises(ValueError, match="already"):
        scaled(once)
