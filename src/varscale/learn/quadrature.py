"""Fit a scale and its laws to similarities, by quadrature: nothing is drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from varscale.functional import log_softmax, query_factor, query_nll, shot_factor
from varscale.scalers import SVS

GUESS = 20.0
"""Prior mean of the scale: about what sentence embeddings need."""
PRIOR_SPREAD = 1.0
"""Prior standard deviation of the logarithm of the scale."""
POWER_SPREAD = 0.5
"""Prior standard deviation of the power of a query's similarity."""
LARGEST_POWER = 1.0
"""Largest power of a query's similarity, of either sign."""
LEAST_TYPICAL = 0.05
"""Smallest similarity that counts as typical."""
RESTARTS = 10
"""Restarts of the search, at most."""
BOUNDS = [(-7.0, 12.0), (0.01, PRIOR_SPREAD), (-7.0, 5.0), (-LARGEST_POWER, LARGEST_POWER)]
"""Bounds of the logarithm of the scale, its spread, the logarithm of the shot offset, the power."""


@dataclass(frozen=True, eq=False)
class Similarities:
    """Tasks of one shape, as a metric without a scale sees them.

    Attributes:
        shot: Supports per class.
        similarity: Similarity of queries and class means.
        labels: Class of each query in its task.
        classes: The same as a base class.
        factor: What is known of the scale of each task, as a factor.
    """

    shot: int
    similarity: Float[Tensor, "task query way"]
    labels: Int[Tensor, "task query"]
    classes: Int[Tensor, "task query"]
    factor: Float[Tensor, " task"]

    @property
    def own(self) -> Float[Tensor, "task query"]:
        """Similarity of a query and its own class."""
        return self.similarity.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)

    @cached_property
    def top(self) -> Float[Tensor, "task query 1"]:
        """Similarity of a query and the class that is most similar."""
        return self.similarity.amax(-1, keepdim=True)

    def every(self, step: int) -> "Similarities":
        """Every `step`-th task."""
        tensors = (self.similarity, self.labels, self.classes, self.factor)
        return Similarities(self.shot, *(tensor[::step] for tensor in tensors))

    def scores(
        self, offset: Float[Tensor, ""], power: Float[Tensor, ""], typical: float
    ) -> Float[Tensor, "task query way"]:
        """Scores at a scale of 1, by the laws of shots (M23) and queries (M41), in float64."""
        grown = shot_factor(torch.tensor([self.shot]).double(), offset)
        scores = self.similarity.double() * query_factor(self.top.double(), power, typical)
        return scores * (grown * self.factor.double()).unsqueeze(-1).unsqueeze(-1)


@dataclass(frozen=True)
class Law:
    """The posterior of a scale, and how it depends on shots (M23) and on the query (M41).

    Attributes:
        mean: Its mean, at very many shots.
        std: Its standard deviation.
        shot_offset: b of the shot law.
        query_power: Power of a query's similarity to its likeliest class.
        top: The similarity at which that changes nothing.
    """

    mean: float
    std: float
    shot_offset: float
    query_power: float
    top: float

    def scores(self, tasks: Similarities) -> Float[Tensor, "task query way"]:
        """Scores at the mean of the scale."""
        power, offset = torch.tensor(self.query_power), torch.tensor(self.shot_offset)
        return self.mean * tasks.scores(offset.double(), power.double(), self.top)

    def own_probability(self, tasks: Similarities) -> Float[Tensor, "task query"]:
        """Probability of the class of each query."""
        log_p = log_softmax(self.scores(tasks))
        return log_p.gather(-1, tasks.labels.unsqueeze(-1)).squeeze(-1).exp()

    def nll(self, tasks: Sequence[Similarities]) -> float:
        """Negative log-likelihood of the queries of some tasks."""
        values = [query_nll(self.scores(each), each.labels).mean() for each in tasks]
        return float(torch.stack(values).mean())


def fit_law(tasks: Sequence[Similarities], *, effective_tasks: float, init: float) -> Law:
    """Find the scale and the laws that explain some tasks (M31).

    SVS with a log-normal posterior; the expectation over it is a quadrature, so the optimum is
    found to the last digits.

    Args:
        tasks: The tasks.
        effective_tasks: Independent tasks that they are worth.
        init: Initial value of the scale.
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
    power = nn.Parameter(torch.tensor(0.0).double())
    parameters = [svs.loc, svs.sigma, log_offset, power]
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    noise, share = torch.from_numpy(nodes[:, None]), torch.from_numpy(weights / weights.sum())
    mean_top = np.mean([each.top.double().mean().item() for each in tasks])
    top = float(mean_top.clip(LEAST_TYPICAL, 1))

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        vector_to_parameters(torch.from_numpy(values), parameters)
        q = svs(torch.zeros(1))
        alpha = svs.sample(q, noise)[..., None, None]  # (node, 1, 1, 1)
        total = torch.zeros(len(noise), dtype=torch.float64)
        for each in tasks:
            scores = each.scores(log_offset.exp(), power, top)
            total = total + query_nll(alpha * scores, each.labels).mean(-1)
        prior = (power / POWER_SPREAD).square() / (2 * effective_tasks)
        value = (share * total).sum() / len(tasks) + svs.penalty(q) + prior
        gradients = torch.autograd.grad(value, parameters)
        return value.item(), torch.cat([g.reshape(1) for g in gradients]).numpy()

    values = parameters_to_vector(parameters).detach().numpy()
    for _ in range(RESTARTS):  # far away a line search may fail, which it takes for the end
        found = minimize(loss, values, method="L-BFGS-B", jac=True, bounds=BOUNDS)
        values = found.x
        if found.nit < 2:
            break
    with torch.no_grad():
        vector_to_parameters(torch.from_numpy(values), parameters)
        q = svs(torch.zeros(1))
    offset = math.exp(values[2])
    return Law(q.mean.item(), q.stddev.item(), offset, float(values[3]), top)
