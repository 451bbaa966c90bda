"""Run the cells of a table or figure that are missing, one after another or on a Dask cluster."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

import numpy as np
import torch

from varscale.core.allocator import keep_memory
from varscale.core.precision import Precision
from varscale.data import Dataset
from varscale.data.store import data_root, list_prepared
from varscale.evaluation import Evaluation
from varscale.paper.grid import config_of
from varscale.paper.results import FLOAT32, Arrays, Results, Row, label
from varscale.paper.sizes import SIZES, SizeName, keep_scaler_ratios, resize
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve
from varscale.runs.logbook import read_metrics
from varscale.runs.scores import Test, score, task_of
from varscale.version import __version__, source_commit

THREADS = 1
"""Threads of a cell, however many run at once: another number rounds differently."""


@dataclass(frozen=True)
class Job:
    """One run of one cell."""

    cell: str  # its name in the grid
    size: SizeName
    seed: int  # of its training
    dataset: str | None = None  # another than the size's own
    precision: Precision = FLOAT32
    given: TrainConfig | None = None  # at the paper's size, instead of the grid's

    @property
    def full(self) -> TrainConfig:
        """The config at the paper's size."""
        return self.given or config_of(self.cell)

    @property
    def planned(self) -> TrainConfig:
        """The config at its size, before the dataset has its say."""
        config = resize(self.full, self.size, self.dataset)
        return replace(config, seed=self.seed, precision=self.precision)

    def resolve(self, dataset: Dataset) -> TrainConfig:
        """Fill in every value of the config, for the dataset that it is run on."""
        config = self.planned
        if dataset.is_images and SIZES[self.size].image_size is None:
            raise ValueError(
                f"Expected embeddings for the size {self.size}, got images: {dataset.name}. "
                "Make them by varscale embed."
            )
        if not dataset.is_images:
            config = replace(config, backbone="identity", backbone_options={})
        return keep_scaler_ratios(self.full, resolve(config, dataset))

    def run(self, runs: Path) -> tuple[Row, Arrays]:
        """Train from wherever it stands, test, and say what came out."""
        from varscale.runs.trainer import train

        keep_memory()
        threads = torch.get_num_threads()
        torch.set_num_threads(THREADS)
        try:
            dataset = Dataset.open(self.planned.dataset)
            config = self.resolve(dataset)
            name = f"{self.cell}-{label(config.dataset, self.precision)}"
            path = runs / self.size / name / f"seed{self.seed}"
            run = Run.open(path) if path.exists() else Run.create(path, config, dataset)
            if run.config.hash != config.hash:
                raise ValueError(f"{path} was made with other settings. Remove it.")
            if run.result is None:
                for _ in train(path, config):
                    pass
            began = time.perf_counter()
            test = Test(episodes=SIZES[self.size].episodes)
            scores = score(run, test)
            return self._row(run, dataset, test, scores, time.perf_counter() - began)
        finally:
            torch.set_num_threads(threads)

    def _row(
        self, run: Run, dataset: Dataset, test: Test, scores: Evaluation, seconds: float
    ) -> tuple[Row, Arrays]:
        result = run.result
        assert result is not None
        _, sampler = task_of(run, test)
        figures = scores.summary()
        metrics = read_metrics(run.path, until=result["best_step"])
        last = next(row for row in reversed(metrics) if "loss" in row)
        row = Row(
            cell=self.cell,
            size=self.size,
            seed=self.seed,
            config_hash=run.config.hash,
            dataset=dataset.name,
            dataset_hash=dataset.hash,
            item="x".join(map(str, dataset.items.shape[1:])),
            steps=result["steps"],
            best_step=result["best_step"],
            val_accuracy=nan if result["val_accuracy"] is None else result["val_accuracy"],
            n_way=sampler.n_way,
            n_shot=int(sampler.shots[0]),
            n_query=sampler.n_query,
            episodes=test.episodes,
            **{name: figures[name] for name in ("accuracy", "ci95", "nll", "ece")},
            **{name: last[name] for name in ("scale_mean", "scale_min", "scale_max")},
            minutes=round((result["seconds"] + seconds) / 60, 2),
            threads=THREADS,
            precision=self.precision,
            version=__version__,
            commit=source_commit(),
        )
        return row, collect_arrays(run, test, scores)


def collect_arrays(run: Run, test: Test, scores: Evaluation) -> Arrays:
    """Collect what a figure or a paired difference needs of a run, besides its row.

    - `hits`: queries of each test task that were right; `bins`: of the calibration error.
    - `step` and, at each, the metrics that begin with `scale_`, and `nll`: 200 steps of the run.
    - `val_step`, `val_accuracy`: every validation.
    - `loc`: the posterior mean of a scale that all tasks share; `task_loc`: of the first 50 test
      tasks where each has its own.
    """
    split, sampler = task_of(run, test)
    rows = [row for row in read_metrics(run.path) if "scale_mean" in row]
    chosen = [rows[i] for i in np.linspace(0, len(rows) - 1, 200).round().astype(int)]
    kept = ("step", "nll", *(name for name in rows[-1] if name.startswith("scale_")))
    seen = [row for row in rows if "val_accuracy" in row]
    arrays: Arrays = {
        "hits": (scores.accuracy * sampler.queries_per_task).round().numpy().astype(np.uint16),
        "bins": scores.bins.numpy(),
        **{name: np.array([row[name] for row in chosen], dtype=np.float32) for name in kept},
        "val_step": np.array([row["step"] for row in seen], dtype=np.int32),
        "val_accuracy": np.array([row["val_accuracy"] for row in seen], dtype=np.float32),
    }
    model = run.model()
    with torch.inference_mode():
        episode = split.episode(sampler.batch(0, 50))
        loc = model.posterior(*model.host.embed(episode)).mean.detach().float()
    if model.scaler.local:
        arrays["task_loc"] = loc.numpy()
    else:
        arrays["loc"] = loc[0].numpy()
    return arrays


def missing(jobs: list[Job], results: Results) -> list[Job]:
    """The jobs without a row and its arrays; one of another config or dataset does not count.

    Where the dataset is not prepared, a row is taken as it is.
    """
    sizes = {job.size for job in jobs}
    rows = {row.key: row for size in sizes for row in results.rows(size)}
    stored = {size: results.stored(size) for size in sizes}
    there = list_prepared(data_root())

    def lacks(job: Job) -> bool:
        row = rows.get((job.cell, job.size, job.planned.dataset, job.precision, job.seed))
        if row is None or row.file not in stored[job.size]:
            return True
        if row.dataset not in there:
            return False
        dataset = Dataset.open(row.dataset)
        return (row.config_hash, row.dataset_hash) != (job.resolve(dataset).hash, dataset.hash)

    return [job for job in jobs if lacks(job)]


def reproduce(jobs: list[Job], results: Results, runs: Path) -> Iterator[Row]:
    """Run jobs one after another, storing each as it is done."""
    for job in jobs:
        row, arrays = job.run(runs)
        results.add(row, arrays)
        yield row
