"""Train a prototypical network with a learned scale on a prepared dataset, and test it.

varscale data prepare mine path/to/folder
python examples/own_data.py mine --n_way 5 --n_shot 1
"""

import argparse

import torch

import varscale
from varscale.data import Dataset


def main() -> None:
    """Train on the training classes, test on the test classes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset", help="a prepared dataset, or glyphs")
    parser.add_argument("--scaler", default="svs", help="see varscale ls")
    parser.add_argument("--steps", type=int, default=500, help="training tasks")
    parser.add_argument("--episodes", type=int, default=600, help="test tasks")
    parser.add_argument("--n_way", type=int, default=5, help="classes per task")
    parser.add_argument("--n_shot", type=int, default=1, help="supports per class")
    parser.add_argument("--n_query", type=int, default=15, help="queries per class")
    args = parser.parse_args()

    dataset = Dataset.open(args.dataset)
    _, *item = dataset.items.shape
    torch.manual_seed(0)  # the weights
    model = varscale.create(
        "pn",
        backbone="conv4" if dataset.is_images else "linear",
        backbone_options=(
            {"image_size": item[0], "in_channels": item[2]}
            if dataset.is_images
            else {"dim": item[0]}
        ),
        scaler=args.scaler,
        scaler_options={"init_loc": 10.0, "lr": 0.01} if args.scaler == "svs" else None,
        metric="cosine",
    )
    task = (args.n_way, args.n_shot, args.n_query)
    optimizers = model.optimizers(queries_per_task=args.n_way * args.n_query)
    split = dataset["train"]
    sampler = varscale.EpisodeSampler(split.labels, *task, stream="train")
    for step in range(args.steps):
        loss = model.loss(split.episode(sampler[step]), index=step)
        loss.total.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step % max(args.steps // 10, 1) == 0:
            nll, alpha = loss.nll.item() / (args.n_way * args.n_query), loss.q.mean.mean().item()
            print(f"task {step}: nll {nll:.3f}, kl {loss.kl.item():.3g}, scale {alpha:.2f}")

    model.eval()
    split = dataset["test"]
    sampler = varscale.EpisodeSampler(split.labels, *task, stream="test")
    hits = []
    with torch.no_grad():
        for start in range(0, args.episodes, 20):
            episode = split.episode(sampler.batch(start, min(20, args.episodes - start)))
            hits.append((model(episode).argmax(-1) == episode.query_labels).double().mean(-1))
    accuracy = 100 * torch.cat(hits)
    half = 1.96 * accuracy.std() / len(accuracy) ** 0.5
    print(
        f"{dataset.name} (hash {dataset.hash[:12]}), {args.n_way}-way {args.n_shot}-shot, "
        f"{args.n_query} queries a class, {args.steps} training tasks, seed 0: "
        f"{accuracy.mean():.2f} ± {half:.2f} % over {len(accuracy)} test tasks"
    )


if __name__ == "__main__":
    main()
