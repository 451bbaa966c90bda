"""Time of evaluating 10,000 test tasks, of embedding their items, and of drawing tasks."""

from pathlib import Path

import numpy as np
import torch

from varscale.bench.plain import Plain
from varscale.bench.synthetic import noise_dataset
from varscale.bench.timing import Ratio, interleave, ratio_of
from varscale.core.precision import embedding_in, has_bfloat16
from varscale.data import EpisodeSampler
from varscale.evaluation import evaluate
from varscale.evaluation.evaluation import embed_split
from varscale.model import create


def evaluation(folder: Path, plain: Plain, repeats: int) -> list[Ratio]:
    """Measure 5-way 1-shot 15-query tasks, on as many 28x28 images as Omniglot's test set."""
    dataset = noise_dataset(folder, (28, 28, 1), classes=423, per_class=20, name="characters")
    split = dataset["train"]
    sampler = EpisodeSampler(split.labels, n_way=5, n_shot=1, n_query=15, stream="test")
    options = {"image_size": 28, "in_channels": 1}
    model = create(backbone_options=options, scaler="svs", metric="cosine").eval()

    def ours() -> None:
        evaluate(model, split, sampler, episodes=10_000)

    def embedding() -> None:
        embed_split(model, split, torch.device("cpu"))

    def usual() -> float:
        return 100 * plain("eval 100")

    return [
        Ratio(
            "eval_speedup",
            ratio_of(usual, ours, repeats=repeats),
            150.0,
            True,
            "10,000 episodes each embedded separately (extrapolated from 100) over ours, 28x28",
        ),
        Ratio(
            "eval_over_embed",
            ratio_of(ours, embedding, repeats=repeats),
            1.15,
            False,
            "whole evaluation of 10,000 episodes over embedding the split once, 28x28",
        ),
    ]


def embedding_bf16(folder: Path, repeats: int) -> list[Ratio]:
    """Measure embedding in bfloat16 over float32, if the CPU has instructions for bfloat16."""
    if not has_bfloat16():
        return []
    split = noise_dataset(folder, (84, 84, 3), classes=20, per_class=32, name="photos")["train"]
    model, device = create(backbone_options={"image_size": 84}).eval(), torch.device("cpu")

    def in_bf16() -> None:
        with embedding_in("bf16-mixed", device):
            embed_split(model, split, device)

    value = ratio_of(in_bf16, lambda: embed_split(model, split, device), repeats=repeats)
    meaning = "embedding a test split in bfloat16 over float32, 84x84"
    return [Ratio("embed_bf16", value, 0.65, False, meaning)]


def episodes_per_second(repeats: int) -> Ratio:
    """Measure sampling: 5-way 5-shot 15-query episodes per second, of 64 classes x 600 items."""
    sampler = EpisodeSampler(np.repeat(np.arange(64), 600), n_way=5, n_shot=5, n_query=15)
    count = 5000

    def draw() -> None:
        sampler.batch(0, count)

    (seconds,) = interleave(draw, repeats=min(repeats, 10))
    meaning = "episodes drawn a second (a rate, for orientation; not a ratio)"
    return Ratio("episodes_per_s", count / seconds, 100_000.0, True, meaning)
