"""Against the real pytorch-metric-learning."""

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.losses import NTXentLoss, TripletMarginLoss

from varscale.functional import squared_euclidean
from varscale.learn import follow
from varscale.plug.metric_learning import ScaledDistance
from varscale.scalers import DAVS, DSVS, SVS, Fixed


@pytest.fixture
def batch(generator):
    labels = torch.arange(4).repeat_interleave(5)
    centres = torch.randn(4, 8, generator=generator)
    x = centres[labels] + 0.5 * torch.randn(20, 8, generator=generator)
    return x.double(), labels


@pytest.mark.parametrize("loss", [NTXentLoss, TripletMarginLoss])
def test_scale_one_is_the_packages_own_distance(batch, loss):
    options = {"temperature": 1.0} if loss is NTXentLoss else {}
    ours = loss(distance=ScaledDistance(Fixed(), similarity=True), **options)
    theirs = loss(distance=CosineSimilarity(), **options)
    torch.testing.assert_close(ours(*batch), theirs(*batch))
    ours = loss(distance=ScaledDistance(Fixed(), kappa=1.0), **options)
    theirs = loss(distance=LpDistance(power=2), **options)
    torch.testing.assert_close(ours(*batch), theirs(*batch))


def test_a_fixed_scale_is_an_inverse_temperature(batch):
    ours = NTXentLoss(1.0, distance=ScaledDistance(Fixed(alpha=10.0), similarity=True))
    torch.testing.assert_close(ours(*batch), NTXentLoss(temperature=0.1)(*batch))


@pytest.mark.parametrize("similarity", [True, False])
def test_matrix_and_pairs_agree(batch, similarity):
    x, _ = batch
    distance = ScaledDistance(DSVS(dim=8), similarity=similarity, normalize_embeddings=False).eval()
    matrix = distance(x[:5], x[5:10])
    pairs = distance.pairwise_distance(x[:5], x[5:10])
    torch.testing.assert_close(matrix.diagonal(), pairs, rtol=0, atol=1e-10)


def test_matrix_and_pairs_agree_below_zero():
    distance = ScaledDistance(Fixed(alpha=[1.0, -2.0]), normalize_embeddings=False).eval()
    x, y = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    assert distance(x, y).tolist() == [[-0.5]]
    assert distance.pairwise_distance(x, y).tolist() == [-0.5]


def test_rounding_makes_no_distance_negative(generator):
    x = 100 + torch.randn(50, 8, generator=generator)
    distance = ScaledDistance(Fixed(alpha=3.0), normalize_embeddings=False).eval()
    assert (squared_euclidean(x, x, torch.tensor([3.0])) < 0).any()  # what it is protected from
    assert (distance(x, x) >= 0).all()


def test_its_losses_learn_the_scale(batch):
    distance = ScaledDistance(
        SVS(init=1.0, lr=0.1, kl_weight=0.0),
        similarity=True,
        generator=torch.Generator().manual_seed(0),
    )
    loss_function = NTXentLoss(temperature=1.0, distance=distance)
    x, labels = batch
    torch.manual_seed(0)
    network = torch.nn.Linear(8, 8, dtype=torch.float64)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    follow(distance.scaler, optimizer, queries_per_task=len(x))
    losses = []
    for _ in range(60):
        loss = loss_function(network(x), labels) + distance.penalty() / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert distance.scaler.loc.item() > 5


def test_amortised_scalers_see_the_batch(batch):
    distance = ScaledDistance(DAVS(dim=8)).eval()
    assert distance(batch[0]).shape == (20, 20)
    assert distance.penalty().item() > 0


def test_draws_come_from_the_generator_that_was_given(batch):
    def draw():
        generator = torch.Generator().manual_seed(3)
        return ScaledDistance(DSVS(dim=8), generator=generator)(batch[0])

    assert torch.equal(draw(), draw())


def test_the_penalty_needs_a_call():
    with pytest.raises(ValueError, match="compute the distances or loss first"):
        ScaledDistance(SVS()).penalty()
