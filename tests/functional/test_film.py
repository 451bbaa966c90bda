import oracle
import pytest
import torch

from varscale.functional import film


@pytest.fixture
def case(generator):
    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    return draw(6, 4, 3, 2), draw(2, 4), draw(2, 4)


def test_it_equals_loops(case):
    plain = [tensor.detach() for tensor in case]
    assert film(*plain).flatten().tolist() == pytest.approx(oracle.film(*plain))


def test_gradients(case):
    assert torch.autograd.gradcheck(film, case)


def test_channels_last_stays(case):
    x, gamma, beta = case
    last = x.contiguous(memory_format=torch.channels_last)
    assert film(last, gamma, beta).is_contiguous(memory_format=torch.channels_last)


def test_tasks_of_unequal_size_are_refused(case, as_user):
    x, gamma, beta = case
    with pytest.raises(ValueError, match="equally many items of each of 2 tasks, got 5 items"):
        film(x[:5], gamma, beta)
    with pytest.raises(ValueError, match="equally many items of each of 0 tasks"):
        film(x, gamma[:0], beta[:0])
    with pytest.raises(ValueError, match=r"shape \(task, 4\), got \(2, 4\) and \(1, 4\)"):
        film(x, gamma, beta[:1])
    with pytest.raises(ValueError, match=r"shape \(task, 3\), got \(2, 4\) and \(2, 4\)"):
        film(x[:, :3], gamma, beta)


def test_half_precision_is_rounded_once():
    """1 + 0.01 is 1.0078 in bfloat16."""
    x = torch.linspace(1, 2, 2001).view(1, 1, 1, -1).bfloat16()
    gamma = torch.full((1, 1), 0.01, dtype=torch.bfloat16)
    modulated = film(x, gamma, torch.zeros_like(gamma))
    assert modulated.dtype == torch.bfloat16
    effect = (modulated.double() - x.double()).mean() / x.double().mean()
    assert effect.item() == pytest.approx(0.01, rel=0.05)
