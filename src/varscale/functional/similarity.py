r"""The formulas of variational metric scaling, numbered (M1, M2, ...) as in `docs/method.md`.

Every function takes any number of leading task axes, written `*task`, and works on all tasks at
once by matrix products; no tensor of shape (query, way, dim) is ever made.

The scale `alpha` always has a last axis of size 1 (a scalar scale) or `dim` (one scale per
dimension), after task axes that broadcast: `(1,)` and `(dim,)` are shared by all tasks, `(task, 1)`
and `(task, dim)` belong to one task each. A plain number is a shared scalar.

Embeddings in half precision are computed with in float32: a softmax over distances deserves it.
"""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.alignment import aligned, is_readable, product, promote, wide
from varscale.labels import check_support
from varscale.pooling import class_logsumexp, class_means

EPS = 1e-12
"""A vector with a norm up to this counts as zero."""


# --- prototypes and normalisation ---------------------------------------------------------------


def prototypes(
    support: Float[Tensor, "*task support dim"],
    labels: Integer[Tensor, "*task support"],
    n_way: int,
) -> Float[Tensor, "*task way dim"]:
    r"""Class means, for any number of supports per class (M1).

    $c_k = \frac{1}{N_k} \sum_{i : y_i = k} \phi(x_i)$

    Example:
        >>> support = torch.tensor([[0.0, 2.0], [4.0, 0.0], [0.0, 4.0]])
        >>> prototypes(support, torch.tensor([0, 1, 0]), n_way=2).tolist()
        [[0.0, 3.0], [4.0, 0.0]]
    """
    if support.shape[:-1] != labels.shape:
        raise ValueError(
            f"Expected one label per support, shape {tuple(support.shape[:-1])}, "
            f"got {tuple(labels.shape)}."
        )
    check_support(labels, n_way)
    return class_means(support, labels, n_way)


def normalize(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    r"""Vectors of unit length (M2): $\hat x = x / \lVert x \rVert$, and $\hat 0 = 0$.

    The gradient at a zero vector is zero, where dividing by `max(norm, eps)` would give 1/eps.

    Example:
        >>> normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    found = unit(x)
    if found.numel() and is_readable(found) and math.isnan(found.detach()[..., 0].sum().item()):
        return unit(x.double()).to(found.dtype)  # squares of float32 may not have fitted
    return found


def unit(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """`normalize` for embeddings of ordinary size: it never looks at values.

    A norm beyond what the type can hold gives NaN, which a loss or a probability then shows.
    """
    x = wide(x)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    norm = torch.add(norm, norm, alpha=0)  # infinity becomes NaN; it would pass for a zero vector
    return torch.div(x, torch.threshold(norm, EPS, torch.inf))


def task_prototype(
    support: Float[Tensor, "*task support dim"], query: Float[Tensor, "*task query dim"] | None
) -> Float[Tensor, "*task dim"]:
    r"""What D-AVS knows of a task: the mean of its embeddings (M3).

    With `query`, over supports and (unlabelled) queries, as published, which makes the classifier
    transductive; with `None`, over the supports alone.
    """
    if query is not None:
        support = torch.cat([support, query], dim=-2)
    return support.mean(-2)


# --- the scaled metric --------------------------------------------------------------------------


def euclidean_logits(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
    *,
    kappa: float = 0.5,
) -> Float[Tensor, "*task query way"]:
    r"""Scaled squared Euclidean distance as logits, in linear form (M4).

    $\ell_{jk} = -\kappa \sum_m \alpha_m (q_{jm} - c_{km})^2 + \kappa \sum_m \alpha_m q_{jm}^2
    = 2\kappa\, q_j^\top (\alpha \odot c_k) - \kappa \sum_m \alpha_m c_{km}^2$

    The query's own term is the same for every class, so the softmax and all its gradients are
    those of $-\kappa d$; leaving it out saves every pass over (query, dim) but the product itself.
    In float32 embeddings should be near the origin, as unit vectors are; `centred` brings others
    there. `squared_euclidean` has the distance whole.

    Args:
        query: Embedded queries.
        reference: What they are compared with: prototypes, or supports.
        alpha: The scale.
        kappa: 1/2 as in the released code (on unit vectors the logits then equal the cosine's up
            to a constant), 1 as in the paper's text and for the unscaled prototypical network.
    """
    query, reference, alpha = aligned(query, reference, alpha)
    weighted = alpha * reference  # (*task, way, dim)
    own = (weighted * reference).sum(-1).unsqueeze(-2)  # (*task, 1, way)
    logits = torch.sub(product(query, weighted), own, alpha=0.5)
    return logits if kappa == 0.5 else 2 * kappa * logits


def dot_logits(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
) -> Float[Tensor, "*task query way"]:
    r"""Scaled inner product (M5): $\ell_{jk} = \sum_m \alpha_m q_{jm} c_{km}$."""
    query, reference, alpha = aligned(query, reference, alpha)
    return product(query, alpha * reference)


def cosine_logits(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
) -> Float[Tensor, "*task query way"]:
    r"""Scaled cosine (M6): $\ell_{jk} = \sum_m \alpha_m \hat q_{jm} \hat c_{km}$.

    Vectors are normalised before the weights are applied and not again after.
    """
    return dot_logits(normalize(query), normalize(reference), alpha)


def squared_euclidean(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
) -> Float[Tensor, "*task query way"]:
    r"""The weighted distance itself (M7): $d_{jk} = \sum_m \alpha_m (q_{jm} - c_{km})^2$."""
    query, reference, alpha = aligned(query, reference, alpha)
    query, reference = centred(query, reference)
    weighted = alpha * reference  # (*task, way, dim)
    query_term = (alpha * query.square()).sum(-1).unsqueeze(-1)  # (*task, query, 1)
    reference_term = (weighted * reference).sum(-1).unsqueeze(-2)  # (*task, 1, way)
    return query_term + reference_term - 2 * product(query, weighted)


def norm_logits(
    query: Float[Tensor, "*#task query dim"],
    reference: Float[Tensor, "*#task way dim"],
    alpha: Float[Tensor, "*#task #dim"] | float = 1.0,
) -> Float[Tensor, "*task query way"]:
    r"""TADAM's unsquared distance (M8): $\ell_{jk} = -\lVert \alpha \odot (q_j - c_k) \rVert$.

    Here the scale multiplies coordinates, so that a constant vector equals a (positive) scalar.
    The gradient at distance zero is zero.
    """
    query, reference, alpha = aligned(query, reference, alpha)
    square = squared_euclidean(query, reference, alpha.squeeze(-2).square())
    zero = square <= torch.finfo(square.dtype).tiny
    return -square.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def centred(
    query: Float[Tensor, "*#task query dim"], reference: Float[Tensor, "*#task way dim"]
) -> tuple[Float[Tensor, "*#task query dim"], Float[Tensor, "*#task way dim"]]:
    """Both with the mean of the references as origin, which changes no distance.

    What all embeddings have in common (a ReLU's are all positive) then cancels here, and not in
    the rounding of a product.
    """
    origin = reference.detach().mean(-2, keepdim=True)
    return query - origin, reference - origin


def attention_logits(
    similarity: Float[Tensor, "*task query support"],
    labels: Integer[Tensor, "*#task support"],
    n_way: int,
) -> Float[Tensor, "*task query way"]:
    r"""Matching network's attention, summed within classes (M9).

    $\ell_{jk} = \log \sum_{i : y_i = k} e^{s_{ji}}$, hence
    $\operatorname{softmax}_k \ell_{jk} = \sum_{i : y_i = k} \operatorname{softmax}_i s_{ji}$

    In log space throughout: at the published scale of 100 the plain sum underflows in float32.
    """
    check_support(labels, n_way)
    return class_logsumexp(similarity, labels, n_way)


# --- the objective ------------------------------------------------------------------------------


def query_nll(
    logits: Float[Tensor, "*task query way"], labels: Integer[Tensor, "*#task query"]
) -> Float[Tensor, "*task"]:
    r"""Negative log-likelihood, summed over the queries of a task (M10).

    $L = -\sum_j \log p_{j, y_j}, \quad p_{jk} = \operatorname{softmax}_k \ell_{jk}$
    """
    labels = labels.long().expand(logits.shape[:-1]).unsqueeze(-1)
    return -log_softmax(logits).gather(-1, labels).sum((-2, -1))


def log_softmax(logits: Float[Tensor, "*batch way"]) -> Float[Tensor, "*batch way"]:
    """Log-probabilities over the last axis, eight times as fast as torch's for a few classes.

    torch goes along the last axis one short row at a time; with the classes in front it goes along
    all rows at once.
    """
    logits = wide(logits)
    return logits.movedim(-1, 0).contiguous().log_softmax(0).movedim(0, -1)


def gaussian_kl(
    loc: Float[Tensor, "*dims"],
    scale: Float[Tensor, "*#dims"],
    prior_loc: Float[Tensor, ""] | float,
    prior_scale: Float[Tensor, ""] | float,
) -> Float[Tensor, "*dims"]:
    r"""$\operatorname{KL}(\mathcal N(\mu, \sigma^2) \,\|\, \mathcal N(\mu_0, \sigma_0^2))$ (M11).

    $\ln\frac{\sigma_0}{\sigma} + \frac{\sigma^2 + (\mu - \mu_0)^2}{2\sigma_0^2} - \frac12$, one
    value per dimension.

    Example:
        >>> round(gaussian_kl(torch.tensor(1.3).double(), torch.tensor(0.7), -0.5, 2.0).item(), 6)
        1.016072
    """
    loc, scale = promote(loc, scale)
    variance = (scale.square() + (loc - prior_loc).square()) / (2 * prior_scale**2)
    log = prior_scale.log() if isinstance(prior_scale, Tensor) else math.log(prior_scale)
    return log - scale.log() + variance - 0.5


def auxiliary_weight(
    index: Integer[Tensor, "*task"], gamma: float, epoch_length: int = 100
) -> Float[Tensor, "*task"]:
    r"""Weight of the auxiliary loss at training task `index` = 0, 1, 2, ... (M14).

    $\lambda = \max(0, 1 - e / \gamma)$ in epoch $e = 1, 2, \dots$ of `epoch_length` tasks. With
    `epoch_length=1` the weight falls at every task, and `gamma` counts tasks.

    Example:
        >>> auxiliary_weight(torch.tensor([0, 99, 7400, 14900, 20000]), gamma=150.0)
        tensor([0.9933, 0.9933, 0.5000, 0.0000, 0.0000])
    """
    epoch = index // epoch_length + 1
    return (1 - epoch / gamma).clamp_min(0)


def log_predictive(
    logits: Float[Tensor, "samples *task query way"],
) -> Float[Tensor, "*task query way"]:
    r"""Log of the predictive integral, by S draws of the scale (M16).

    $\log p(y_j = k) = \log \frac1S \sum_s \operatorname{softmax}_k \ell_{jk}(\alpha_s)$
    """
    if len(logits) == 1:  # the mean of one is itself
        return log_softmax(logits[0])
    return log_softmax(logits).logsumexp(0) - math.log(len(logits))
