"""Fit a scale and its shot law to similarities, by quadrature: nothing is drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from varscale.functional import log_softmax, query_nll
from varscale.learn.selection import class_nll
from varscale.model.head import Scale
from varscale.scalers import SVS

GUESS = 20.0
"""Prior mean of the scale: about what sentence embeddings need."""
PRIOR_SPREAD = 1.0
"""Prior standard deviation of the logarithm of the scale."""
RESTARTS = 10
"""Restarts of the search, at most."""
BOUNDS = [(-7.0, 12.0), (0.01, PRIOR_SPREAD), (-7.0, 5.0)]
"""Bounds of the logarithm of the scale, its spread, and the logarithm of the shot offset."""


@dataclass(frozen=True, eq=False)
class Similarities:
    """Tasks of one shape, as a metric without a scale sees them.

    Attributes:
        shot: Supports per class.
        similarity: Similarity of queries and class means.
        labels: Class of each query in its task.
        classes: The same as a base class.
    """

    shot: int
    similarity: Float[Tensor, "task query way"]
    labels: Int[Tensor, "task query"]
    classes: Int[Tensor, "task query"]

    @property
    def own(self) -> Float[Tensor, "task query"]:
        """Similarity of a query and its own class."""
        return self.similarity.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)

    def logits(
        self, scale: Scale, alpha: Float[Tensor, "*draws 1"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*draws task query way"]:
        """Class scores at values of alpha: the cosine is linear in it."""
        count = torch.tensor([float(self.shot)], dtype=alpha.dtype)
        grown = scale.at_shots((scale.origin * alpha).unsqueeze(-1), count)  # (*draws, 1, 1)
        return grown.unsqueeze(-1) * self.similarity.to(dtype)


def fit_scale(
    tasks: Sequence[Similarities], *, effective_tasks: float, init: float, origin: float = 1.0
) -> Scale:
    """Find the scale and the shot law that explain some tasks.

    SVS with a log-normal posterior; the expectation over it is a quadrature, so the optimum is
    found to the last digits.

    Args:
        tasks: The tasks.
        effective_tasks: Independent tasks that they are worth.
        init: Initial value of the scale.
        origin: Factor of the scale in these tasks (M31).
    """
    from scipy.optimize import minimize  # scikit-learn brings it

    svs = SVS(
        family="log-normal",
        prior_mean=GUESS * math.exp(-(PRIOR_SPREAD**2) / 2),  # its mean is the guess
        prior_sigma=PRIOR_SPREAD,
        init=init,
        kl_weight="elbo",
        effective_tasks=effective_tasks,
    ).double()
    assert isinstance(svs.sigma, nn.Parameter)
    log_offset = nn.Parameter(torch.tensor(math.log(0.5)).double())
    parameters = [svs.loc, svs.sigma, log_offset]
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    noise, share = torch.from_numpy(nodes[:, None]), torch.from_numpy(weights / weights.sum())

    def scale_now() -> Scale:
        return Scale(svs(torch.zeros(1)), log_offset.exp(), origin)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        vector_to_parameters(torch.from_numpy(values), parameters)
        scale = scale_now()
        alpha = svs.sample(scale.q, noise)  # (node, 1)
        total = torch.zeros(len(noise), dtype=torch.float64)
        for each in tasks:
            logits = each.logits(scale, alpha, torch.float64)
            total = total + query_nll(logits, each.labels).mean(-1)
        value = (share * total).sum() / len(tasks) + svs.penalty(scale.q)
        gradients = torch.autograd.grad(value, parameters)
        return value.item(), torch.cat([g.reshape(1) for g in gradients]).numpy()

    values = parameters_to_vector(parameters).detach().numpy()
    for _ in range(RESTARTS):  # far away a line search may fail, which it takes for the end
        found = minimize(loss, values, method="L-BFGS-B", jac=True, bounds=BOUNDS)
        values = found.x
        if found.nit < 2:
            break
    vector_to_parameters(torch.from_numpy(values), parameters)
    for parameter in parameters:
        parameter.requires_grad_(False)
    return scale_now()


def similarities_nll(tasks: Sequence[Similarities], scale: Scale) -> Float[np.ndarray, " class"]:
    """Mean NLL of the queries of every base class, at the mean of a scale."""

    def predict(each: Similarities) -> tuple[Tensor, Tensor, Tensor]:
        log_p = log_softmax(each.logits(scale, scale.q.mean))
        return log_p, each.labels, each.classes

    return class_nll(map(predict, tasks))
