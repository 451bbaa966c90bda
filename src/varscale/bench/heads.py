"""Time of heads, compared with broadcasting and with plain matrix products."""

import torch
import torch.nn.functional as F
from torch import Tensor

from varscale.bench.timing import Ratio, interleave, peak_memory
from varscale.functional import euclidean_logits
from varscale.model import create


def head_dsvs(repeats: int) -> list[Ratio]:
    """Measure broadcasting over ours: 75 queries, 5 ways, M = 1600, forward and backward."""
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

    slow, fast = interleave(broadcast, ours, repeats=repeats, calls=200)
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


def head_over_plain(repeats: int) -> Ratio:
    """Measure the whole model over plain torch: 5 ways, 5 shots, 75 queries, M = 1600."""
    dim, way = 1600, 5
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(1, 25, dim, generator=generator)
    query = torch.randn(1, 75, dim, generator=generator)
    labels = torch.arange(way).repeat_interleave(5).unsqueeze(0)
    options = {"backbone": "identity", "backbone_options": {"dim": dim}, "metric": "cosine"}
    model = create("pn", scaler="svs", **options).eval()  # type: ignore[arg-type]

    def ours() -> Tensor:
        return model.predict(support, labels, query, n_way=way, checked=True)

    def plain() -> Tensor:
        member = F.one_hot(labels, way).to(support.dtype)  # (task, support, way)
        centres = torch.bmm(member.mT, support) / member.sum(1).unsqueeze(-1)
        cosine = torch.bmm(F.normalize(query, dim=-1), F.normalize(centres, dim=-1).mT)
        return (100.0 * cosine).log_softmax(-1)

    with torch.inference_mode():
        torch.testing.assert_close(ours(), plain(), rtol=0, atol=1e-3)
        slow, fast = interleave(ours, plain, repeats=repeats, calls=200)
    return Ratio(
        "head_over_plain",
        slow / fast,
        1.6,
        False,
        "time of a PN head through the model over plain matrix products, M = 1600",
    )
