"""Claims that mathematics decides: quick computations, in double precision."""

import torch

from varscale.core.random import normal
from varscale.functional import euclidean_logits, normalize, query_nll


def _task(queries: int = 1000, way: int = 5, dim: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    draws = normal(0, "checks", 0, queries + way, dim)
    return draws[:queries], draws[queries:]


def argmax_under_scales() -> tuple[float, float]:
    """Answers in per cent that a change of the scale changes: by scalars, and by vectors."""
    query, centres = map(normalize, _task())
    before = euclidean_logits(query, centres, 1.0).argmax(-1)
    scalars = [euclidean_logits(query, centres, a).argmax(-1) for a in (0.01, 10.0, 1000.0)]
    vector = normal(0, "checks/vector", 0, 1, query.shape[1])[0].exp()
    changed = euclidean_logits(query, centres, vector).argmax(-1) != before
    same = torch.stack([(other != before).double().mean() for other in scalars]).max()
    return 100 * float(same), 100 * float(changed.double().mean())


def gradient_under_a_stretch(factor: float) -> float:
    """How the scale's gradient grows when embeddings do, at equal probabilities."""
    query, centres = _task()
    labels = torch.arange(len(query)) % len(centres)

    def gradient(stretch: float) -> torch.Tensor:
        alpha = torch.full((1,), stretch**-2, dtype=torch.float64, requires_grad=True)
        logits = euclidean_logits(stretch * query, stretch * centres, alpha)
        (found,) = torch.autograd.grad(query_nll(logits, labels), alpha)
        return found

    return float(gradient(factor) / gradient(1.0))
