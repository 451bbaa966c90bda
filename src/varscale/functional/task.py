"""What the examples of one task tell about it: origin, spread, left-out similarities (M37-M41)."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.core.tensors import is_readable
from varscale.functional.prototypes import EPS

LEAST_TOP = 0.5
"""Smallest similarity to the likeliest class that counts in M41, as a share of the typical one."""
SCORINGS = 25
"""Half steps of Fisher scoring in the search of two variances: to a thousandth.

Whole ones may go in circles."""
LARGEST_LOG = math.log(10)
"""A variance differs by at most a factor of 10 from the base classes'."""
LARGEST_RATIO = 1e6
"""Of a variance that was measured and one that was expected."""
HALVINGS = 20
"""Bisections in the search of a factor: to a millionth of the prior's range."""


def task_origin(
    means: Float[Tensor, "*task way dim"], origin: Float[Tensor, " dim"]
) -> tuple[Float[Tensor, "*task 1 dim"], Float[Tensor, "*task 1 1"]]:
    r"""The origin of a task, between a given one and the mean of its classes (M37).

    $o = m + w (\bar c - m)$ with $w = \max\big(0,\ 1 - \frac{V}{K \lVert \bar c - m \rVert^2}\big)$
    and $V = \frac{1}{K - 1} \sum_k \lVert c_k - \bar c \rVert^2$

    Args:
        means: Class means $c_k$.
        origin: The given one, $m$.

    Returns:
        $o$ and $w$. A task of one class keeps $m$.

    Example:
        >>> means = torch.tensor([[9.0, 1.0], [11.0, -1.0]])
        >>> task_origin(means, torch.zeros(2))[0]
        tensor([[9.8000, 0.0000]])
    """
    way = means.shape[-2]
    centre = means.mean(-2, keepdim=True)  # (*task, 1, dim)
    if way < 2:
        return origin.expand_as(centre), torch.zeros_like(centre[..., :1])
    spread = class_spread(means)[..., None, None]
    distance = way * (centre - origin).square().sum(-1, keepdim=True)
    weight = (1 - spread / distance.clamp_min(EPS**2)).clamp_min(0)
    return origin + weight * (centre - origin), weight


def class_spread(means: Float[Tensor, "*task way dim"]) -> Float[Tensor, "*task"]:
    r"""Variance of class means, over all dimensions: $V$ of M37 and M39; 0 of one class."""
    centre = means.mean(-2, keepdim=True)
    return (means - centre).square().sum((-2, -1)) / max(means.shape[-2] - 1, 1)


def class_variances(
    spread: Float[Tensor, "*task"],
    square: Float[Tensor, "*task"],
    count: Float[Tensor, "*task way"],
    *,
    between: float,
    within: float,
    dimensions: float,
    reach: float,
) -> tuple[Float[Tensor, "*task"], Float[Tensor, "*task"]]:
    r"""Variances between and within the classes of a task, as factors of the base classes' (M39).

    The mode of $\log b$ and $\log s$ under normal priors about the base classes' variances, where
    $V$ has the mean $b + \frac sK \sum_k \frac1{n_k}$ and is as noisy as that of $d (K - 1)$
    independent numbers, the variance within classes as that of $d \sum_k (n_k - 1)$.

    Args:
        spread: $V$, the variance of the class means.
        square: Squared distances of examples and their class means, summed.
        count: Examples of each class.
        between: Variance between base classes.
        within: Variance within them.
        dimensions: $d$, the dimensions that the noise within classes fills.
        reach: Standard deviation of both priors.
    """
    noise, degrees = count.reciprocal().mean(-1), (count - 1).clamp_min(0).sum(-1)
    about_means, about_items = dimensions * (count.shape[-1] - 1) / 2, dimensions * degrees / 2
    own = (square / (degrees.clamp_min(EPS) * within)).clamp_max(LARGEST_RATIO)
    log_b, log_s = torch.zeros_like(spread), torch.zeros_like(spread)
    for _ in range(SCORINGS):
        b, s = between * log_b.exp(), within * noise * log_s.exp()
        off = about_means * ((spread / (b + s)).clamp_max(LARGEST_RATIO) - 1)
        b, s = b / (b + s), s / (b + s)  # shares of the mean of V
        up_b = off * b - log_b / reach**2
        up_s = off * s + about_items * (own * (-log_s).exp() - 1) - log_s / reach**2
        bb = about_means * b.square() + reach**-2
        ss = about_means * s.square() + about_items + reach**-2
        bs = about_means * b * s
        twice = 2 * (bb * ss - bs.square())
        log_b = log_b + ((ss * up_b - bs * up_s) / twice).clamp(-1, 1)
        log_s = log_s + ((bb * up_s - bs * up_b) / twice).clamp(-1, 1)
        log_b, log_s = (log.clamp(-LARGEST_LOG, LARGEST_LOG) for log in (log_b, log_s))
    return log_b.exp(), log_s.exp()


def leave_one_out(
    items: Float[Tensor, "*task item dim"],
    labels: Integer[Tensor, "*task item"],
    means: Float[Tensor, "*task way dim"],
    count: Float[Tensor, "*task way"],
    weight: Float[Tensor, "*task 1 1"],
) -> Float[Tensor, "*task item way"]:
    r"""Cosines of each example and the class means without it (M38), in closed form.

    Without item $i$ of class $y$ that class has the mean $c_y + \delta_i$,
    $\delta_i = (c_y - x_i) / (n_y - 1)$, and the origin moves by $\varepsilon_i = w \delta_i / K$.
    All products come from $x_i^\top c_k$ and $c_j^\top c_k$: nothing of shape (item, way, dim).

    Args:
        items: Examples, from the origin of the task.
        labels: Their classes.
        means: Class means, from the same origin.
        count: Examples of each class. An only example is not left out of its class.
        weight: $w$ of `task_origin`.
    """
    way = means.shape[-2]
    cross = items @ means.mT  # (*task, item, way)
    if labels.shape[-1] < way:  # fewer products than those of all classes
        chosen = labels.unsqueeze(-1).expand(*labels.shape, means.shape[-1])
        own_gram = means.gather(-2, chosen) @ means.mT  # (*task, item, way)
        diagonal = means.square().sum(-1)
    else:
        gram = means @ means.mT  # (*task, way, way)
        own_gram = gram.gather(-2, labels.unsqueeze(-1).expand(*labels.shape, way))
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
    own = labels.unsqueeze(-1)
    cross_own, gram_own = cross.gather(-1, own), own_gram.gather(-1, own)  # (*task, item, 1)
    square = items.square().sum(-1, keepdim=True)
    others = (count.gather(-1, labels) - 1).unsqueeze(-1)
    left = torch.where(others > 0, 1 / others.clamp_min(1), 0.0)  # delta = left (c_y - x)
    move = weight / way * left  # epsilon = move (c_y - x)
    gap = gram_own - 2 * cross_own + square  # |c_y - x|^2
    shift = move.square() * gap
    query = square - 2 * move * (cross_own - square) + shift  # |x - epsilon|^2
    inner = cross - move * (own_gram - cross) - move * (cross_own - square) + shift
    norm = diagonal.unsqueeze(-2) - 2 * move * (own_gram - cross) + shift
    rest = left - move  # the own mean moves by delta - epsilon
    own_inner = cross_own + rest * (cross_own - square) - move * (gram_own - cross_own)
    own_inner = own_inner - move * rest * gap
    own_norm = gram_own + 2 * rest * (gram_own - cross_own) + rest.square() * gap
    inner = inner.scatter(-1, own, own_inner)
    norm = norm.scatter(-1, own, own_norm)
    length = (query * norm).clamp_min(0).sqrt()
    return torch.where(length > EPS, inner / length.clamp_min(EPS), 0.0).clamp(-1, 1)


def scale_factor(
    logits: Float[Tensor, "*task item way"],
    labels: Integer[Tensor, "*task item"],
    weight: Float[Tensor, "*task item"],
    spread: Float[Tensor, "*task"],
) -> tuple[Float[Tensor, "*task"], Float[Tensor, "*task"]]:
    r"""The factor of the scale that the examples of a task ask for (M39).

    The mode of $\sum_i w_i \log \operatorname{softmax}_{y_i}(f \ell_i) - \frac{(\log f)^2}{2
    \tau^2}$ in $\log f$, by bisection of its slope.

    Args:
        logits: Scores $\ell_i$ of each example, itself left out.
        labels: Their classes.
        weight: 1 for the examples that count, else 0.
        spread: $\tau$; at 0 the factor is 1.

    Returns:
        The factor, and the standard deviation of its logarithm that the examples leave.
    """
    high = 4.0 * spread
    low = -high
    right = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        f = middle.exp()
        share = torch.softmax(f[..., None, None] * logits, -1)
        slope = f * (weight * (right - (share * logits).sum(-1))).sum(-1)
        up = spread.square() * slope > middle
        low, high = torch.where(up, middle, low), torch.where(up, high, middle)
    f = ((low + high) / 2).exp()
    share = torch.softmax(f[..., None, None] * logits, -1)
    from_mean = logits - (share * logits).sum(-1, keepdim=True)
    information = f.square() * (weight * (share * from_mean.square()).sum(-1)).sum(-1)
    return f, spread * (1 + spread.square() * information).rsqrt()


def average_softmax(
    logits: Float[Tensor, "*task query way"],
    std: Float[Tensor, "*task"],
    bias: Float[Tensor, "*task query way"] | float = 0.0,
) -> Float[Tensor, "*task query way"]:
    r"""Probabilities of classes if the scale is uncertain (M39).

    $\operatorname{E}_f[\operatorname{softmax}(f \ell)]$ with $\log f \sim \mathcal N(0, \sigma^2)$,
    by a quadrature of three nodes. At $\sigma = 0$ it is the softmax.

    Args:
        logits: Scores $\ell$ at the most likely scale.
        std: $\sigma$.
        bias: What is added to the scores, whatever the scale.

    Example:
        >>> average_softmax(torch.tensor([[2.0, 0.0]]), torch.tensor(0.5))
        tensor([[0.8689, 0.1311]])
    """
    if is_readable(std) and not std.any():
        return (logits + bias).softmax(-1)
    factor = (math.sqrt(3) * std)[..., None, None].to(logits)
    low, middle, high = ((logits * (x * factor).exp() + bias).softmax(-1) for x in (-1, 0, 1))
    return (low + 4 * middle + high) / 6


def query_factor(
    top: Float[Tensor, "*query"], power: Float[Tensor, ""] | float, typical: float
) -> Float[Tensor, "*query"]:
    r"""Factor of the scale for a query, by its similarity to its likeliest class (M41).

    $(t / t_0)^{-\gamma}$, with $t \ge t_0 / 2$; 1 for $\gamma = 0$.

    Example:
        >>> query_factor(torch.tensor([0.25, 1.0]), 0.5, typical=0.25)
        tensor([1.0000, 0.5000])
    """
    return (top / typical).clamp_min(LEAST_TOP) ** -power


def likeliest_factor(
    cosine: Float[Tensor, "*task query way"],
    scores: Float[Tensor, "*task query way"],
    power: float,
    typical: float,
) -> Float[Tensor, "*task query 1"]:
    """The factor of each query (M41), whose likeliest class is that of its highest score."""
    return query_factor(cosine.gather(-1, scores.argmax(-1, keepdim=True)), power, typical)


def query_logits(
    z: Float[Tensor, "*task query dim"],
    references: Float[Tensor, "*task way dim"],
    weights: Float[Tensor, "*task way dim"],
    bias: Float[Tensor, "*task way"],
    *,
    power: float,
    typical: float,
) -> Float[Tensor, "*task query way"]:
    r"""Scores of queries: $\ell_k = (t / t_0)^{-\gamma} (w_k^\top z + a_k)$ (M41).

    $t$ is the similarity of the query and its likeliest class.

    Args:
        z: Unit vectors of the queries.
        references: Unit class means.
        weights: Class weights $w_k$.
        bias: What is added for each class, $a_k$.
        power: $\gamma$; at 0 all queries have the same scale.
        typical: $t_0$.
    """
    logits = z @ weights.mT + bias.unsqueeze(-2)
    if not power:
        return logits
    likeliest = logits.argmax(-1).unsqueeze(-1).expand(z.shape)
    top = (z * references.gather(-2, likeliest)).sum(-1, keepdim=True)
    return logits * query_factor(top, power, typical)
