"""The training loop, on Lightning Fabric, which handles devices, precision and processes.

Tasks, draws of the scale and learning rates depend only on the config and the number of the step.
So a run that was killed goes on from its last checkpoint to the weights that it would have reached,
bit for bit on a CPU.
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
from torch.optim import Optimizer

from varscale.backbones.shared_norm import share_batch_norm
from varscale.core.files import write_whole
from varscale.core.processes import Processes
from varscale.data import Dataset
from varscale.data.feed import Feed
from varscale.evaluation import evaluate
from varscale.evaluation.metrics import interval
from varscale.learn import optimizers
from varscale.learn.cotraining import Cotraining
from varscale.learn.optimizers import steps_itself
from varscale.learn.step import Step
from varscale.runs.checkpoint import (
    forget_after,
    module_tensors,
    newest_checkpoint,
    optimizer_tensors,
    restore_module,
    restore_optimizers,
    save_checkpoint,
    weights_hash,
)
from varscale.runs.config import TrainConfig, validation
from varscale.runs.launch import Signals, launch
from varscale.runs.logbook import Logbook
from varscale.runs.loss import TaskLoss
from varscale.runs.run import CONFIG, RESULT, Interrupted, Run

Metrics = dict[str, Any]


def train(path: Path, config: TrainConfig) -> Iterator[Metrics]:
    """Train a run to its end from where it stands; yield the metrics of every step.

    Args:
        path: A run directory, as `Run.create` makes it.
        config: The run's config; its hardware may be another than the one it began with.
    """
    fabric = launch(
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
            stack.enter_context(run.lock())
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
                        f"Continue: varscale resume {path}",
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
        rates: dict[str, Any] = {
            name: getattr(config, name) for name in ("lr", "algorithm", "momentum", "weight_decay")
        }
        queries = sampler.queries_per_task
        self.optimizers = optimizers(self.model, queries_per_task=queries, **rates)
        self.steps = config.steps if self.optimizers and config.steps else 0
        self.own = steps_itself(self.model.scaler)
        loss = TaskLoss(self.model, config.seed)
        self.loss, self.take_step = self._set_up(loss, self.optimizers, own=self.own)
        self.cotraining: Cotraining | None = None
        if config.cotraining_plan:
            self.cotraining = Cotraining(
                self.model.host,
                dataset["train"],
                config.cotraining_plan,
                steps=self.steps,
                seed=config.seed,
                processes=self.processes,
            )
            extra = self.cotraining.optimizer(**rates)
            self.extra_loss, self.take_extra_step = self._set_up(self.cotraining, [extra])
            self.optimizers = [*self.optimizers, extra]
        self.stopping = self.done = 0
        self.state: dict[str, Any] = {"best": None, "best_step": 0, "seconds": 0.0}
        self.state |= {"hits": 0.0, "counted": 0}
        checkpoint = newest_checkpoint(run.path / "checkpoint")
        if checkpoint is not None:
            try:
                restore_module(self.model, checkpoint.tensors)
                restore_optimizers(self.optimizers, checkpoint.tensors)
                if self.cotraining:
                    restore_module(self.cotraining.head, checkpoint.tensors, "head")
            except (RuntimeError, IndexError, KeyError) as error:
                raise ValueError(
                    f"The checkpoint of step {checkpoint.step} in {run.path} belongs to "
                    "another model. Put the right one back, or train again."
                ) from error
            self.done, self.state = checkpoint.step, {**self.state, **checkpoint.info}
            forget_after(run.path / "best", self.done)  # it will be found again
            self._compare_threads()

    def _set_up(
        self, loss: nn.Module, optimizers: list[Optimizer], *, own: bool = False
    ) -> tuple[Any, Step]:
        """Move a loss to Fabric's devices, and make the step that lowers it."""
        wrapped: Any = self.fabric.setup(loss, *optimizers) if optimizers else [loss]
        step = Step(optimizers, own=own, steppers=wrapped[1:], backward=self.fabric.backward)
        return wrapped[0].train(), step

    def _compare_threads(self) -> None:
        before, now = self.run.provenance["machine"]["threads"], torch.get_num_threads()
        if self.processes.count == 1 and before != now:
            warnings.warn(
                f"{self.run.path} began with {before} threads and goes on with {now}: the result "
                f"will be equal to rounding, not bit for bit. Set OMP_NUM_THREADS={before}.",
                stacklevel=2,
            )

    def step(self, step: int, stop: int = 0) -> Metrics:
        """Update all weights once; `stop` asks all processes to stop after it."""
        began = time.perf_counter()
        metrics: Metrics = {"step": step + 1}
        extra = self.cotraining
        due = extra is not None and extra.due(step)
        if extra and (due or extra.plan.statistics == "always"):
            batch = [tensor.to(self.fabric.device) for tensor in extra.batch(step)]
            if due:
                metrics |= self._update(
                    self.extra_loss, self.take_extra_step, step, stop, "cotraining_", *batch
                )
            else:
                with torch.no_grad():  # batch norm alone notices
                    self.extra_loss(*batch)
        if not (extra and due and extra.plan.replace):
            index, episode = self.feed(step)
            tensors = episode.to(self.fabric.device).tensors
            metrics |= self._update(
                self.loss, self.take_step, step, stop, "", index, episode.n_way, **tensors
            )
            self.state["hits"] += metrics["accuracy"]
            self.state["counted"] += 1
        self.state["seconds"] += time.perf_counter() - began
        metrics["seconds"] = self.state["seconds"]
        if self.take_step.schedules:
            metrics["lr"] = self.take_step.schedules[0].rates[0] * self.config.rate_factor(step)
        if self.own:
            metrics["lr_scaler"] = self.model.scaler.lr
        return metrics

    def _update(
        self,
        loss: Any,
        take_step: Step,
        step: int,
        stop: int,
        prefix: str,
        *inputs: Any,
        **named: Any,
    ) -> Metrics:
        """Update the weights by one loss. Raises Interrupted if the loss is not finite."""
        try:
            terms = loss(*inputs, **named)
        except ValueError as error:
            if "more than 1 value per channel" in str(error):  # batch norm's
                raise ValueError(
                    "A batch of one image has no batch statistics. Use more supports or queries."
                ) from error
            raise self._diverged(step + 1, str(error)) from error
        metrics = self._gather(terms, stop)
        for name in ("nll", "kl", "aux", "loss"):
            if not math.isfinite(metrics.get(name, 0.0)):
                raise self._diverged(step + 1, f"{prefix}{name} became {metrics[name]}.")
        config = self.config
        factor = config.rate_factor(step)
        take_step(terms["loss"], factor=factor, clip=config.clip, clip_by=config.clip_by)
        return {f"{prefix}{name}": value for name, value in metrics.items()}

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
        extra = {}
        if self.cotraining and len(self.cotraining.held_out):
            extra["cotraining_val_accuracy"] = self.cotraining.held_out_accuracy()
        accuracy, half = interval(scores.accuracy)
        score = accuracy
        if self.config.select_by == "training":  # since the last validation
            score = self.state["hits"] / max(self.state["counted"], 1)
        self.state |= {"hits": 0.0, "counted": 0}
        self.state["seconds"] += time.perf_counter() - began
        if self.state["best"] is None or score > self.state["best"]:
            self.state |= {"best": score, "best_step": step + 1}
            self.state |= {"val_accuracy": accuracy, "val_ci95": half}
            self.save("best", step + 1)
        nll = float(scores.nll.mean())
        return {"val_accuracy": accuracy, "val_ci95": half, "val_nll": nll, **extra}

    def save(self, folder: str, step: int) -> None:
        """Write a checkpoint, or the best model; what is not finite is never saved."""
        tensors = module_tensors(self.model)
        if folder == "checkpoint":
            tensors |= optimizer_tensors(self.optimizers)
            if self.cotraining:
                tensors |= module_tensors(self.cotraining.head, "head")
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

    def _gather(self, terms: dict[str, Tensor], stop: int) -> Metrics:
        """Gather the metrics of all processes, and whether one of them has to stop."""
        flag = torch.full_like(terms["loss"], stop)
        here = torch.stack([t.detach().to(flag) for t in (*terms.values(), flag)])
        everywhere = self.processes.gather(here).cpu()  # (process, term): one wait for the device
        self.stopping = int(everywhere[:, -1].max())
        values = dict(zip(terms, everywhere.mean(0).tolist(), strict=False))
        lowest, highest = everywhere.aminmax(dim=0)
        names = list(terms)
        for name, extreme in (("scale_min", lowest), ("scale_max", highest)):
            if name in values:
                values[name] = float(extreme[names.index(name)])
        return values

    def _diverged(self, step: int, what: str) -> Interrupted:
        path, lower = self.run.path, f"--lr {self.config.lr / 10:g}"
        if self.own:  # the scaler has a learning rate of its own
            lower += f" --scaler_options.lr {(self.model.scaler.lr or 0) / 10:g}"
        return Interrupted(
            f"Step {step}: {what} The learning rate is probably too high. Train again from step 0 "
            f"with a lower one: varscale train --config {path / CONFIG} {lower} --out {path}-2. "
            "(varscale resume would repeat the same steps.)"
        )


def _way_back(run: Run) -> str:
    last = newest_checkpoint(run.path / "checkpoint")
    where = f"checkpoint is that of step {last.step}" if last else "step was not yet saved"
    return f"The last {where}: varscale resume {run.path}"
