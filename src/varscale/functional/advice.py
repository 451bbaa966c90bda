"""What to label next, and what further examples are worth (M46, M47)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

GAIN, HALF = 1.95, 1.2
"""By how much the quantile of the accuracy rises from none to very many shots, and the number of
shots at which half of it is reached (M47)."""
USUAL, PER_WAY, VARIETY = 2.4, 0.45, 0.6
"""That quantile for usual tasks of two classes at one shot, how fast it falls with the logarithm
of the number of other classes, and its standard deviation among tasks (M47)."""
WORTH, DOUBT = 0.8, 0.15
"""Independent answers that one held-out example is worth, and by how much the law misses (M47)."""


def choose_covering(
    similarity: Float[Tensor, "item item"],
    covered: Float[Tensor, " item"],
    weight: Float[Tensor, " item"],
    n: int,
) -> Int[Tensor, " n"]:
    r"""Choose items that resemble the others, where these are not yet resembled (M46).

    One by one the item of largest gain $\sum_j u_j \max(0,\ s_{ij} - t_j)$ is chosen, and each
    $t_j$ becomes $\max(t_j, s_{ij})$.

    Args:
        similarity: $s_{ij}$ of all items.
        covered: $t_j$: the largest similarity of each item and what is labelled already.
        weight: $u_j$: how much is to be learned about each item.
        n: Number of items to choose, at most as many as there are.

    Example:
        >>> s = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.8], [0.0, 0.8, 1.0]])
        >>> choose_covering(s, torch.zeros(3), torch.ones(3), 2).tolist()
        [1, 2]
    """
    covered, chosen = covered.clone(), []
    gain = (similarity - covered.unsqueeze(-1)).clamp_min(0) * weight.unsqueeze(-1)
    gain = gain.sum(0, dtype=torch.float64)
    for _ in range(n):
        best = int(gain.argmax())
        chosen.append(best)
        new = torch.maximum(covered, similarity[:, best])
        moved = new > covered
        rows, share = similarity[moved], weight[moved].unsqueeze(-1)
        before, after = covered[moved].unsqueeze(-1), new[moved].unsqueeze(-1)
        gain -= ((rows.clamp_min(before) - rows.clamp_min(after) + after - before) * share).sum(0)
        gain[best], covered = -math.inf, new
    return torch.tensor(chosen, dtype=torch.long)


def extrapolate_error(
    error: Float[Tensor, " size"],
    shots: Float[Tensor, "size way"],
    answers: float,
    target: Float[Tensor, " way"],
    *,
    width: float,
) -> tuple[float, float, float]:
    r"""Tell the error at `target` shots from those at fewer shots (M47).

    On the scale of normal quantiles, $\zeta = \Phi^{-1}(1 - e)$, an error at $n_k$ shots falls by

    $\zeta(m) - \zeta(n) = \frac{1.95}K \sum_k \big( \frac{m_k}{m_k + 1.2} -
    \frac{n_k}{n_k + 1.2} \big)$.

    Args:
        error: Share of wrong answers $e$, at some numbers of shots.
        shots: $n_k$ behind each.
        answers: Number of examples that were answered.
        target: $m_k$.
        width: Standard deviations from the middle of the interval to its ends.

    Returns:
        The error, and the lower and upper end of its interval; none above that of guessing.

    Example:
        >>> few, many = torch.full((1, 10), 2.0), torch.full((10,), 10.0)
        >>> found = extrapolate_error(torch.tensor([0.1]), few, 100, many, width=1.645)
        >>> [round(value, 3) for value in found]
        [0.041, 0.021, 0.074]
    """
    way, number = shots.shape[-1], WORTH * answers
    guessing = 1 - 1 / way
    share = error.double().clamp(0.5 / (number + 1), guessing)
    quantile = -torch.special.ndtri(share)
    slope = torch.exp(-quantile.square() / 2) / math.sqrt(2 * math.pi)
    noise = (share * (1 - share) / (number * slope.square())).mean()
    seen = (quantile - _rise(shots.double())).mean()  # at no shots
    usual = USUAL - PER_WAY * math.log(way - 1) - _rise(torch.ones(1, dtype=torch.float64))
    weight = VARIETY**2 / (VARIETY**2 + noise)
    middle = usual + weight * (seen - usual) + _rise(target.double())
    half = width * (weight * noise + DOUBT**2).sqrt()
    ends = torch.stack([middle, middle + half, middle - half])
    return tuple(torch.special.ndtr(-ends).clamp_max(guessing).tolist())


def _rise(shots: Float[Tensor, "*size way"]) -> Float[Tensor, "*size"]:
    return GAIN * (shots / (shots + HALF)).mean(-1)
