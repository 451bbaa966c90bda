"""Learn the scale of a prototypical network on synthetic tasks, and see what it buys.

    python examples/quickstart.py

Embeddings are frozen Gaussian classes in 64 dimensions, of which 8 tell classes apart and 56 are
mostly noise. Four classifiers see the same training tasks and the same test tasks:

- no scaling: cosine similarity as it is,
- SVS: one learned scale (it cannot change a prediction, only the probabilities),
- D-SVS: one learned scale per dimension,
- D-AVS: scales generated for each task.
"""

import argparse

import torch
from rich.console import Console
from rich.table import Table

import varscale
from varscale import learn
from varscale.data import GaussianTasks

SPREAD = torch.cat([torch.full((8,), 1.5), torch.full((56,), 0.2)])
METHODS = {"no scaling": None, "SVS": "svs", "D-SVS": "d-svs", "D-AVS": "d-avs"}


def train(
    scaler: str | None, tasks: GaussianTasks, steps: int, n_tasks: int
) -> varscale.ScaledModel:
    """Train on `steps` batches of `n_tasks` tasks."""
    torch.manual_seed(0)  # the generator's weights
    model = varscale.create(
        "pn",
        backbone="identity",
        backbone_options={"dim": len(SPREAD)},
        scaler=scaler,
        metric="cosine",
    )
    if model.scaler.log_parameters():
        learn.begin_at_data(model, [tasks.batch(0, n_tasks)])  # no initial value to choose
    optimizers = learn.optimizers(model, queries_per_task=tasks.n_way * tasks.n_query)
    for step in range(steps if optimizers else 0):
        episode = tasks.batch(step * n_tasks, n_tasks)
        model.loss(episode, index=step * n_tasks).total.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def evaluate(model: varscale.ScaledModel, test: varscale.Episode) -> tuple[torch.Tensor, float]:
    """Accuracy of every test task, and the mean negative log-likelihood of a query."""
    assert test.query_labels is not None
    log_p = model(test)
    accuracy = (log_p.argmax(-1) == test.query_labels).double().mean(-1)
    return accuracy, -log_p.gather(-1, test.query_labels.unsqueeze(-1)).mean().item()


def interval(per_task: torch.Tensor) -> str:
    """Mean in per cent, with the half-width of its 95 % interval over tasks."""
    half = 1.96 * per_task.std() / len(per_task) ** 0.5
    return f"{100 * per_task.mean():.2f} ± {100 * half:.2f}"


def main() -> None:
    """Train, evaluate and print one row per method."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=500, help="training steps")
    parser.add_argument("--tasks", type=int, default=8, help="training tasks per step")
    parser.add_argument("--episodes", type=int, default=2000, help="test tasks, shared by all")
    args = parser.parse_args()
    torch.set_num_threads(1)  # these steps are too small to share

    tasks = GaussianTasks(spread=SPREAD, noise=torch.ones(len(SPREAD)))
    test = GaussianTasks(spread=SPREAD, noise=tasks.noise, stream="test").batch(0, args.episodes)
    table = Table("method", "accuracy %", "gain, paired", "NLL", "scale: mean (min .. max)")
    baseline = None
    for name, scaler in METHODS.items():
        model = train(scaler, tasks, args.steps, args.tasks)
        accuracy, nll = evaluate(model, test)
        baseline = accuracy if baseline is None else baseline
        with torch.no_grad():
            alpha = model.posterior(test.support, test.query).mean
        table.add_row(
            name,
            interval(accuracy),
            "" if scaler is None else interval(accuracy - baseline),
            f"{nll:.3f}",
            f"{alpha.mean():.1f} ({alpha.min():.1f} .. {alpha.max():.1f})",
        )
    console = Console(highlight=False)
    console.print(
        f"Synthetic Gaussian classes, 64 dimensions, 5-way 1-shot, 15 queries a class; "
        f"{args.steps * args.tasks} training tasks, {args.episodes} shared test tasks, seed 0."
    )
    console.print(table)


if __name__ == "__main__":
    main()
