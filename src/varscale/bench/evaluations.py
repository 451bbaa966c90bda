"""Time of evaluating 10,000 test tasks, of embedding their items, and of heads."""

from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from varscale.bench.plain import Plain
from varscale.bench.synthetic import noise_dataset
from varscale.bench.timing import interleave, peak_memory, ratio_of
from varscale.core.precision import embedding_in, has_bfloat16
from varscale.data import EpisodeSampler
from varscale.evaluation import evaluate
from varscale.evaluation.evaluation import embed_split
from varscale.functional import euclidean_logits
from varscale.model import create


def evaluation(folder: Path, plain: Plain, repeats: int) -> dict[str, float]:
    """Measure 5-way 1-shot 15-query tasks, on as many 28x28 images as Omniglot's test set."""
    dataset = noise_dataset(folder, (28, 28, 1), classes=423, per_class=20, name="characters")
    split = dataset["train"]
    sampler = EpisodeSampler(split.labels, n_way=5, n_shot=1, n_query=15, stream="test")
    options = {"image_size": 28, "in_channels": 1}
    model = create(backbone_options=options, scaler="svs", metric="cosine").eval()

    ours = partial(evaluate, model, split, sampler, episodes=10_000)
    embedding = partial(embed_split, model, split, torch.device("cpu"))

    def usual() -> float:
        return 100 * plain("eval 100")

    return {
        "eval_speedup": ratio_of(usual, ours, repeats=repeats),
        "eval_over_embed": ratio_of(ours, embedding, repeats=repeats),
    }


def embedding_bf16(folder: Path, repeats: int) -> dict[str, float]:
    """Measure embedding in bfloat16 over float32, if the CPU has instructions for bfloat16."""
    if not has_bfloat16():
        return {}
    split = noise_dataset(folder, (84, 84, 3), classes=20, per_class=32, name="photos")["train"]
    model, device = create(backbone_options={"image_size": 84}).eval(), torch.device("cpu")

    def in_bf16() -> None:
        with embedding_in("bf16-mixed", device):
            embed_split(model, split, device)

    in_float32 = partial(embed_split, model, split, device)
    return {"embed_bf16": ratio_of(in_bf16, in_float32, repeats=repeats)}


def head_dsvs(repeats: int) -> dict[str, float]:
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
    return {
        "head_speedup_dsvs": slow / fast,
        "head_memory_dsvs": peak_memory(ours) / peak_memory(broadcast),
    }


def head_over_plain(repeats: int) -> dict[str, float]:
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

    alpha: float = model.scaler(support[:, 0]).mean.item()

    def plain() -> Tensor:
        member = F.one_hot(labels, way).to(support.dtype)  # (task, support, way)
        centres = torch.bmm(member.mT, support) / member.sum(1).unsqueeze(-1)
        cosine = torch.bmm(F.normalize(query, dim=-1), F.normalize(centres, dim=-1).mT)
        return (alpha * cosine).log_softmax(-1)

    with torch.inference_mode():
        torch.testing.assert_close(ours(), plain(), rtol=0, atol=1e-3)
        slow, fast = interleave(ours, plain, repeats=repeats, calls=200)
    return {"head_over_plain": slow / fast}
