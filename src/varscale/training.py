"""The training loop, on Lightning Fabric: devices, precision and processes are Fabric's business.

Everything that happens at a step is a function of the config and the number of the step: the tasks,
the draws of the scale, the rates. So a run that was killed goes on from its last checkpoint to the
same weights, bit for bit on a CPU, that it would have reached.
"""

import json
import math
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from varscale.checkpoint import (
    forget_after,
    model_tensors,
    newest_checkpoint,
    optimizer_tensors,
    restore_model,
    restore_optimizers,
    save_checkpoint,
    weights_hash,
)
from varscale.config import TrainConfig, validation
from varscale.data import Dataset
from varscale.data.feed import Feed
from varscale.distributed import Processes, share_batch_norm
from varscale.episode import Episode
from varscale.evaluation import evaluate
from varscale.files import write_whole
from varscale.launch import Signals, launched
from varscale.logbook import Logbook
from varscale.metrics import interval
from varscale.model import ScaledModel
from varscale.optimization import Schedule, clip_gradients
from varscale.run import RESULT, Interrupted, Run

Metrics = dict[str, Any]


def train(path: Path, config: TrainConfig) -> Iterator[Metrics]:
    """Train a run to its end from where it stands; yields the metrics of every step.

    Args:
        path: A run directory, as `Run.create` makes it.
        config: The run's config; its hardware may be another than the one it began with.
    """
    fabric = launched(
        config.devices,
        num_nodes=config.num_nodes,
        accelerator=config.accelerator,
        strategy=config.strategy,
        precision=config.precision,
    )
    fabric.barrier()  # torchrun starts all processes at once, and one of them makes the directory
    run = Run.open(path)
    if config.hash != run.config.hash:
        raise ValueError(f"The config is not that of {path}. Give it Run.open(path).config.")
    main = fabric.global_rank == 0
    with ExitStack() as stack:
        if main:
            stack.enter_context(run.locked())
        trainer = Trainer(run, config, fabric, run.dataset())
        signals = stack.enter_context(Signals())
        book = Logbook(path, every=config.log_every, done=trainer.done, main=main)
        stack.enter_context(book)
        try:
            for step in range(trainer.done, trainer.steps):
                last = step + 1 == trainer.steps
                metrics = trainer.step(step, signals.received)
                if config.val_every and (last or (step + 1) % config.val_every == 0):
                    metrics |= trainer.validate(step)
                book.write(metrics)
                due = config.checkpoint_every and (step + 1) % config.checkpoint_every == 0
                if last or due or trainer.stopping:
                    trainer.save("checkpoint", step + 1)
                yield metrics
                if trainer.stopping and not last:
                    raise Interrupted(
                        f"Stopped after step {step + 1} of {trainer.steps}, which is saved. "
                        f"Go on: varscale resume {path}",
                        status=128 + trainer.stopping,
                    )
            trainer.finish()
        except RuntimeError as error:
            if trainer.processes.count == 1 or not re.search("gloo|nccl|peer", str(error), re.I):
                raise
            raise Interrupted(f"A worker process died. {_way_back(run)}") from error


class Trainer:
    """A model, its optimisers and its data, at some step of a run.

    Args:
        run: The run; where it has a checkpoint, that is where the trainer stands.
        config: Its config.
        fabric: Already launched.
        dataset: Its dataset.
    """

    def __init__(self, run: Run, config: TrainConfig, fabric: Fabric, dataset: Dataset) -> None:
        self.run, self.config, self.fabric = run, config, fabric
        self.processes = Processes(fabric.global_rank, fabric.world_size, fabric.device)
        sampler = config.sampler(dataset["train"].labels, "train")
        self.feed = Feed(dataset["train"], sampler, config.tasks_per_step, self.processes)
        self.validation = validation(config, dataset) if config.val_every else None

        self.model = config.model()
        if self.processes.count > 1:
            share_batch_norm(self.model)
        self.optimizers = self.model.optimizers(
            queries_per_task=sampler.queries_per_task,
            lr=config.lr,
            algorithm=config.algorithm,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        own = self.model.scaler.steps_itself  # a scaler's own rate is constant, and not clipped
        self.schedules = [Schedule(o) for o in self.optimizers[: len(self.optimizers) - own]]
        self.steps = config.steps if self.optimizers and config.steps else 0
        loss = TaskLoss(self.model, config.seed)
        wrapped: Any = fabric.setup(loss, *self.optimizers) if self.optimizers else [loss]
        self.loss, self.steppers = wrapped[0], wrapped[1:]
        self.loss.train()
        self.stopping = 0
        self.done = 0
        self.state: dict[str, Any] = {"best": None, "best_step": 0, "hits": 0.0, "seconds": 0.0}
        checkpoint = newest_checkpoint(run.path / "checkpoint")
        if checkpoint is not None:
            try:
                restore_model(self.model, checkpoint.tensors)
                restore_optimizers(self.optimizers, checkpoint.tensors)
            except (RuntimeError, IndexError, KeyError) as error:
                raise ValueError(
                    f"The checkpoint of step {checkpoint.step} in {run.path} is that of another "
                    "model. Put the right one back, or train anew."
                ) from error
            self.done, self.state = checkpoint.step, {**self.state, **checkpoint.info}
            forget_after(run.path / "best", self.done)  # it will be found again
            self._compare_threads()

    def _compare_threads(self) -> None:
        before, now = self.run.provenance["machine"]["threads"], torch.get_num_threads()
        if self.processes.count == 1 and before != now:
            warnings.warn(
                f"{self.run.path} began with {before} threads and goes on with {now}: the result "
                f"will be equal to rounding, not bit for bit. Set OMP_NUM_THREADS={before}.",
                stacklevel=2,
            )

    def step(self, step: int, stop: int = 0) -> Metrics:
        """One update of all weights; `stop` asks all processes to stop after it."""
        began = time.perf_counter()
        for schedule in self.schedules:
            schedule.set(self.config.rate_factor(step))
        index, episode = self.feed(step)
        try:
            terms = self.loss(index, episode.n_way, **episode.to(self.fabric.device).tensors)
        except ValueError as error:
            raise self._diverged(step + 1, str(error)) from error
        metrics = self._everybodys(terms, stop)
        for name in ("nll", "kl", "aux", "loss"):
            if not math.isfinite(metrics[name]):
                raise self._diverged(step + 1, f"{name} became {metrics[name]}.")
        self.fabric.backward(terms["loss"])
        if self.config.clip is not None:
            for schedule in self.schedules:
                clip_gradients(schedule.optimizer, self.config.clip, self.config.clip_by)
        for stepper in self.steppers:
            stepper.step()
            stepper.zero_grad()
        self.state["hits"] += metrics["accuracy"]
        self.state["seconds"] += time.perf_counter() - began
        metrics["seconds"] = self.state["seconds"]
        if self.schedules:
            metrics["lr"] = self.optimizers[0].param_groups[0]["lr"]
        if self.model.scaler.steps_itself:
            metrics["lr_scaler"] = self.model.scaler.lr
        return {"step": step + 1, **metrics}

    def validate(self, step: int) -> Metrics:
        """Score the model on the validation tasks, and keep it if it is the best so far."""
        assert self.validation is not None
        began = time.perf_counter()
        try:
            scores = evaluate(
                self.model,
                *self.validation,
                episodes=self.config.val_episodes,
                samples=int(self.config.val_alpha == "sample"),
                processes=self.processes,
            )
        except ValueError as error:
            raise self._diverged(step + 1, f"validation: {error}") from error
        accuracy, half = interval(scores.accuracy)
        score = accuracy if self.config.select_by == "validation" else self.state["hits"]
        self.state["hits"] = 0.0
        self.state["seconds"] += time.perf_counter() - began
        if self.state["best"] is None or score > self.state["best"]:
            self.state |= {"best": score, "best_step": step + 1}
            self.state |= {"val_accuracy": accuracy, "val_ci95": half}
            self.save("best", step + 1)
        return {"val_accuracy": accuracy, "val_ci95": half, "val_nll": float(scores.nll.mean())}

    def save(self, folder: str, step: int) -> None:
        """Write a checkpoint, or the best model; what is not finite is never saved."""
        tensors = model_tensors(self.model)
        if folder == "checkpoint":
            tensors |= optimizer_tensors(self.optimizers)
        bad = next((name for name, t in tensors.items() if not t.isfinite().all()), None)
        if bad is not None:
            raise self._diverged(step, f"{bad.removeprefix('model/')} is no longer finite.")
        if self.processes.rank == 0:
            save_checkpoint(self.run.path / folder, step, tensors, self.state)

    def finish(self) -> None:
        """Write the result; without validation the last model is the best."""
        if not self.state["best_step"]:
            self.save("best", self.steps)
        result = {
            "steps": self.steps,
            "best_step": self.state["best_step"] or self.steps,
            "val_accuracy": self.state.get("val_accuracy"),
            "val_ci95": self.state.get("val_ci95"),
            "weights_sha256": weights_hash(self.model),
            "seconds": self.state["seconds"],
        }
        if self.processes.rank == 0:
            write_whole(self.run.path / RESULT, json.dumps(result, indent=1).encode())

    def _everybodys(self, terms: dict[str, Tensor], stop: int) -> Metrics:
        """The metrics over all processes, and the news that one of them wants to stop."""
        flag = torch.full_like(terms["loss"], stop)
        here = torch.stack([t.detach().to(flag) for t in (*terms.values(), flag)])
        everywhere = self.processes.gather(here)  # (process, term)
        self.stopping = int(everywhere[:, -1].max())
        values = dict(zip(terms, everywhere.mean(0).tolist(), strict=False))
        lowest, highest = everywhere.aminmax(dim=0)
        names = list(terms)
        values["scale_min"] = float(lowest[names.index("scale_min")])
        values["scale_max"] = float(highest[names.index("scale_max")])
        return values

    def _diverged(self, step: int, what: str) -> Interrupted:
        return Interrupted(
            f"Step {step}: {what} Is the learning rate too high (lr {self.config.lr:g}, scaler "
            f"{self.model.scaler.lr})? {_way_back(self.run)}"
        )


class TaskLoss(nn.Module):
    """`ScaledModel.loss` as a forward of plain tensors, which is what Fabric and DDP can wrap."""

    def __init__(self, model: ScaledModel, seed: int) -> None:
        super().__init__()
        self.model, self.seed = model, seed

    def forward(self, index: int, n_way: int, **tensors: Tensor) -> dict[str, Tensor]:
        """The loss of the tasks from `index` on, its terms, the accuracy and the scale."""
        episode = Episode.trusted(**tensors, n_way=n_way)
        loss = self.model.loss(episode, index=index, seed=self.seed)
        assert episode.query_labels is not None
        lowest, highest = loss.q.loc.aminmax()
        return {
            "loss": loss.total,
            "nll": loss.nll.mean() / episode.query.shape[1],
            "kl": loss.kl.mean(),
            "aux": loss.aux.mean() / episode.query.shape[1],
            "accuracy": (loss.logits.argmax(-1) == episode.query_labels).float().mean(),
            "scale_mean": loss.q.loc.mean(),
            "scale_spread": loss.q.scale.mean(),
            "scale_min": lowest,
            "scale_max": highest,
        }


def _way_back(run: Run) -> str:
    last = newest_checkpoint(run.path / "checkpoint")
    where = f"checkpoint is that of step {last.step}" if last else "step was not yet saved"
    return f"The last {where}: varscale resume {run.path}"
