"""What to label next, and what further examples are worth (M46, M47)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

USUAL, PER_WAY, VARIETY = 3.2, 0.1, 0.6
"""How far usual tasks of two classes are from guessing at very many shots, how that grows with the
logarithm of the number of other classes, and its least standard deviation among tasks (M47)."""
OFFSET = 1.2
"""Shots at which that distance is the root of one half of what very many give (M47)."""
WORTH, DOUBT = 0.6, 0.15
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

    $\Phi^{-1}(1 - e) = \Phi^{-1}(1/K) + \frac DK \sum_k \sqrt{\frac{n_k}{n_k + 1.2}}$,
    where $D$ is found at the given shots and shrunk towards that of usual tasks.

    Args:
        error: Share of wrong answers $e$, at some numbers of shots.
        shots: $n_k$ behind each.
        answers: Number of examples that were answered.
        target: $n_k$ at which to tell the error.
        width: Standard deviations from the middle of the interval to its ends.

    Returns:
        The error, and the lower and upper end of its interval; none above that of guessing.

    Example:
        >>> few, many = torch.full((1, 10), 2.0), torch.full((10,), 10.0)
        >>> found = extrapolate_error(torch.tensor([0.1]), few, 1000, many, width=1.645)
        >>> [round(value, 3) for value in found]
        [0.037, 0.02, 0.065]
    """
    way, number = shots.shape[-1], WORTH * answers
    chance = torch.tensor(1 / way, dtype=torch.float64)
    guessing = torch.special.ndtri(chance)
    share = torch.minimum(error.double().clamp_min(0.5 / (number + 1)), 1 - chance)
    quantile, reach = -torch.special.ndtri(share), _reach(shots.double())
    slope = torch.exp(-quantile.square() / 2) / math.sqrt(2 * math.pi)
    noise = (share * (1 - share) / (number * (slope * reach).square())).mean()
    seen = ((quantile - guessing) / reach).mean()
    usual = USUAL + PER_WAY * math.log(way - 1)
    variety = ((seen - usual).square() - noise).clamp_min(VARIETY**2)
    weight = variety / (variety + noise)
    middle = usual + weight * (seen - usual)
    half = width * (weight * noise + DOUBT**2).sqrt()
    ends = torch.stack([middle, middle + half, middle - half]).clamp_min(0)
    ends = torch.special.ndtr(-guessing - _reach(target.double()) * ends)
    return ends[0].item(), ends[1].item(), ends[2].item()


def _reach(shots: Float[Tensor, "*size way"]) -> Float[Tensor, "*size"]:
    return (shots / (shots + OFFSET)).sqrt().mean(-1)
