r"""Quality of predictions, and confidence intervals; numbered as in `docs/method.md`."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

BINS = 15
"""Number of confidence bins in the expected calibration error."""


def brier_score(
    log_p: Float[Tensor, "*batch way"], labels: Integer[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    r"""Squared distance between the probabilities and the true class (M18).

    $\sum_k (p_k - [k = y])^2 = \sum_k p_k^2 - 2 p_y + 1$, between 0 and 2.

    Example:
        >>> brier_score(torch.tensor([0.8, 0.2]).log(), torch.tensor(0))
        tensor(0.0800)
    """
    p = log_p.exp()
    return p.square().sum(-1) - 2 * p.gather(-1, labels.unsqueeze(-1)).squeeze(-1) + 1


def calibration_bins(
    confidence: Float[Tensor, "*batch"], hit: Bool[Tensor, "*batch"]
) -> Float[Tensor, "3 bins"]:
    """Number of predictions, sum of confidences and number of hits in bins of equal width.

    The bins are closed on the left; a confidence of 1 falls into the last.
    """
    values = [v.flatten().double() for v in (torch.ones_like(hit), confidence, hit)]
    index = (values[1] * BINS).long().clamp_(0, BINS - 1)
    return torch.stack([torch.bincount(index, v, minlength=BINS) for v in values])


def expected_calibration_error(bins: Float[Tensor, "3 bins"]) -> float:
    r"""Mean distance between confidence and accuracy of the bins, weighted by size (M19).

    $\sum_b \frac{n_b}{n} \lvert \text{accuracy}_b - \text{confidence}_b \rvert$

    Example:
        >>> sure, hit = torch.tensor([1.0, 0.9, 0.6, 0.6]), torch.tensor([True, True, True, False])
        >>> round(expected_calibration_error(calibration_bins(sure, hit)), 3)
        0.075
    """
    count, confidence, hits = bins
    return float((hits - confidence).abs().sum() / count.sum())


def interval(values: Float[Tensor, " n"] | Sequence[float]) -> tuple[float, float]:
    r"""Mean and half-width of its 95 % interval (M20): $1.96\, s / \sqrt n$.

    $s$ is the standard deviation with $n - 1$. The half-width of a single value is NaN.
    """
    x = torch.as_tensor(values, dtype=torch.float64)
    if len(x) < 2:
        return float(x.mean()), math.nan
    return float(x.mean()), 1.96 * float(x.std()) / math.sqrt(len(x))


def t_interval(values: Float[Tensor, " n"] | Sequence[float]) -> tuple[float, float]:
    r"""Mean and half-width by Student's t: $t_{0.975, n-1}\, s / \sqrt n$ (M20).

    Appropriate for few runs: for five it is 1.42 times as wide as the published interval.
    """
    from scipy.special import stdtrit  # imported here to keep `import varscale` fast

    mean, half = interval(values)
    return mean, half * float(stdtrit(len(values) - 1, 0.975)) / 1.96


def share_interval(hits: float, number: int) -> tuple[float, float]:
    r"""Ends of the 95 % interval of a share of independent trials (M48), after Wilson.

    Example:
        >>> [round(end, 3) for end in share_interval(10, 10)]
        [0.722, 1.0]
    """
    z = 1.96
    share, spread = hits / number, z * z / number
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / number + spread / (4 * number)) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)
