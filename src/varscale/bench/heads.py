"""The D-SVS head against the code that everybody writes first."""

import torch

from varscale.bench.timing import Ratio, interleaved, peak_memory
from varscale.functional import euclidean_logits


def head_dsvs(repeats: int) -> list[Ratio]:
    """75 queries, 5 ways, M = 1600, forward and backward: broadcasting against ours."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(75, 1600, generator=generator).requires_grad_()
    reference = torch.randn(5, 1600, generator=generator).requires_grad_()
    alpha = torch.rand(1600, generator=generator).requires_grad_()
    upstream = torch.randn(75, 5, generator=generator)  # the loss's gradient, the same for both
    leaves = (query, reference, alpha)

    def ours() -> None:
        logits = euclidean_logits(query, reference, alpha)
        torch.autograd.grad(logits, leaves, upstream)

    def broadcast() -> None:
        difference = query.unsqueeze(1) - reference  # (query, way, dim)
        logits = -0.5 * (alpha * difference.square()).sum(-1)
        torch.autograd.grad(logits, leaves, upstream)

    slow, fast = interleaved(broadcast, ours, repeats=repeats, calls=200)
    return [
        Ratio(
            "head_speedup_dsvs",
            slow / fast,
            5.0,
            True,
            "time of the broadcast D-SVS head over ours, forward + backward, M = 1600",
        ),
        Ratio(
            "head_memory_dsvs",
            peak_memory(ours) / peak_memory(broadcast),
            0.1,
            False,
            "peak memory of our D-SVS head over the broadcast one",
        ),
    ]
