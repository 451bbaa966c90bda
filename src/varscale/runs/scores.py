"""Score runs on test tasks, and describe the figures."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from varscale.core.allocator import keep_memory
from varscale.core.precision import embedding_in
from varscale.core.processes import ALONE, Processes
from varscale.data import EpisodeSampler, Split
from varscale.data.sampler import Queries
from varscale.evaluation import Evaluation, evaluate
from varscale.evaluation.metrics import interval, t_interval
from varscale.runs.config import TASK
from varscale.runs.run import PROVENANCE, Run


@dataclass(frozen=True)
class Test:
    """The tasks that a model is tested on; by default with the shots of training.

    Args:
        episodes: Test tasks.
        n_way: Classes per task; by default the run's n_way, at most 5, or its val_way if that is
            more; and no more than there are.
        n_shot: Supports per class; or a list, one number per class; by default as in training.
        n_query: Queries per class, or per task if queries is random; by default the run's
            test_query.
        queries: Draw n_query of each class (balanced), or n_query per task (random).
        dataset: Another dataset, with items of the same shape; by default the run's.
        split: Classes to test on: train, val or test.
        seed: Seed of the tasks; a seed gives every run the same tasks.
        samples: Average predictions over N draws of the scale; 0 uses its posterior mean.
        precision: 32-true, or bf16-mixed to embed in bfloat16.
    """

    episodes: int = 10_000
    n_way: int | None = None
    n_shot: int | list[int] | None = None
    n_query: int | None = None
    queries: Queries = "balanced"
    dataset: str | None = None
    split: Literal["train", "val", "test"] = "test"
    seed: int = 0
    samples: int = 0
    precision: Literal["32-true", "bf16-mixed"] = "32-true"

    def __post_init__(self) -> None:
        if self.episodes < 2:
            raise ValueError(f"Expected episodes >= 2 for an interval, got {self.episodes}.")
        if self.n_query is not None and self.n_query < 1:
            raise ValueError(f"Expected n_query >= 1, got {self.n_query}.")


def runs_in(path: Path) -> list[Run]:
    """Open the run at a path, or the runs in its subfolders."""
    if (path / PROVENANCE).is_file():
        return [Run.open(path)]
    found = sorted(p.parent for p in path.glob(f"*/{PROVENANCE}"))
    if not found:
        raise ValueError(f"Expected a run directory, or a folder of them, got {path}.")
    runs = [Run.open(p) for p in found]
    kinds = {(replace(run.config, seed=0).hash, str(run.provenance.get("code"))) for run in runs}
    if len(kinds) > 1 or len({run.config.seed for run in runs}) < len(runs):
        raise ValueError(
            f"Expected runs in {path} that differ in their seeds alone, got "
            f"{', '.join(p.name for p in found)}. Give one of them."
        )
    return runs


def task_of(run: Run, test: Test) -> tuple[Split, EpisodeSampler]:
    """Make the split and the sampler of a run's test."""
    config = run.config
    dataset = run.dataset(test.dataset)
    if test.split not in dataset.class_split:
        others = " or ".join(f"--split {name}" for name in dict.fromkeys(dataset.class_split))
        raise ValueError(
            f"The dataset {dataset.name!r} has no {test.split} classes. Use {others}, or prepare "
            "it with other shares."
        )
    split = dataset[test.split]
    _, *item = split.dataset.items.shape
    _, *own = run.dataset().items.shape
    if item != own:
        raise ValueError(
            f"{run.path} was trained on items of {own}; {split.dataset.name} has {item}. "
            "Prepare it in the same size."
        )
    usual = max(config.val_way or 0, min(config.n_way, 5))  # few validation classes: no easy test
    way = max(2, min(usual, dataset.class_split.count(test.split)))
    task = {"n_way": way, "n_query": config.test_query or 15}
    task |= {name: value for name in TASK if (value := getattr(test, name)) is not None}
    names = split.dataset.class_names
    return split, config.sampler(split.labels, test.split, class_names=names, **task)


def score(run: Run, test: Test, processes: Processes = ALONE) -> Evaluation:
    """Score a run's best model on the test's tasks."""
    keep_memory()
    tasks, model = task_of(run, test), run.model()
    with embedding_in(test.precision, torch.device("cpu")):
        return evaluate(
            model, *tasks, episodes=test.episodes, samples=test.samples, processes=processes
        )


def settle(test: Test, run: Run) -> Test:
    """Fill in a test's defaults from a run, so that all runs get the same tasks."""
    sampler = task_of(run, test)[1]
    return replace(
        test,
        n_way=sampler.n_way,
        n_shot=sampler.shots.tolist(),
        n_query=sampler.n_query,
        dataset=test.dataset or run.config.dataset,
    )


def facts(run: Run, test: Test) -> dict[str, Any]:
    """Facts that belong beside a figure: data, tasks, seeds."""
    split, sampler = task_of(run, test)
    dataset = split.dataset
    return {
        "dataset": dataset.name,
        "dataset_hash": dataset.hash,
        "split": test.split,
        "item": list(dataset.items.shape[1:]),
        "n_way": sampler.n_way,
        "n_shot": sampler.shots.tolist() if len(set(sampler.shots)) > 1 else int(sampler.shots[0]),
        "n_query": sampler.n_query,
        "queries": sampler.queries,
        "seed": test.seed,
        "samples": test.samples,
        "precision": test.precision,
        "scaler": run.config.scaler,
        "train_seed": run.config.seed,
        "train_steps": (run.result or {}).get("steps"),
        "config_hash": run.config.hash,
        "threads": torch.get_num_threads(),
    }


def over_seeds(values: list[float]) -> dict[str, Any]:
    """Mean over runs, with the published interval and the t-interval (M20)."""
    mean, half = interval(values)
    return {"n": len(values), "mean": mean, "ci95": half, "t95": t_interval(values)[1]}
