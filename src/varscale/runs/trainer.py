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
from varscale.core.interrupted import Interrupted
from varscale.core.processes import Processes
from varscale.data import Dataset, EpisodeSampler, Split
from varscale.data.feed import Feed
from varscale.evaluation import evaluate
from varscale.evaluation.evaluation import embed_split
from varscale.evaluation.metrics import interval
from varscale.learn import optimizers
from varscale.learn.cotraining import Cotraining
from varscale.learn.optimizers import own_lr, steps_itself
from varscale.learn.rescaling import FIRST_TASKS, begin_at_data, replace_items, rescale
from varscale.learn.step import Step
from varscale.model.rows import episode_of
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
from varscale.runs.logbook import Logbook, read_metrics
from varscale.runs.loss import TaskLoss
from varscale.runs.run import CONFIG, RESULT, Run
from varscale.runs.settling import follow_scale

Metrics = dict[str, Any]
Learning = tuple[Any, Step]
"""A loss on Fabric's devices, and the step that lowers it."""


def train(path: Path, config: TrainConfig) -> Iterator[Metrics]:
    """Train a run to its end from where it stands; yield the metrics of every step.

    The config is that of the run, but for the hardware.
    """
    names = ("devices", "num_nodes", "accelerator", "strategy", "precision")
    fabric = launch(**{name: getattr(config, name) for name in names})
    fabric.barrier()  # torchrun starts all processes at once, and one of them makes the directory
    run = Run.open(path)
    if config.hash != run.config.hash:
        raise ValueError(f"The config is not that of {path}. Give it Run.open(path).config.")
    if changed := run.changed_code():
        raise ValueError(
            f"{', '.join(changed)} changed after {path} began: the run cannot go on as it would "
            f"have. Put the code back, or train again: varscale train --config {path / CONFIG} "
            "--out NEW."
        )
    if run.result is not None:  # finished: nothing is left to do, and nothing to lose
        return
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
            saved = newest_checkpoint(path / "checkpoint")
            where = (
                f"checkpoint is that of step {saved.step}" if saved else "step was not yet saved"
            )
            raise Interrupted(
                f"A worker process died. The last {where}: varscale resume {path}"
            ) from error


class Trainer:
    """A model, its optimisers and its data, at the step of a run's newest checkpoint."""

    def __init__(self, run: Run, config: TrainConfig, fabric: Fabric, dataset: Dataset) -> None:
        self.run, self.config, self.fabric = run, config, fabric
        self.processes = Processes(fabric.global_rank, fabric.world_size, fabric.device)
        sampler = config.sampler(dataset["train"].labels, "train")
        self.feed = Feed(dataset["train"], sampler, config.tasks_per_step, self.processes)
        self.validation = validation(config, dataset) if config.val_every else None
        self.model = config.model()
        self.given: float | None = None  # the scale before the data had a say
        checkpoint = newest_checkpoint(run.path / "checkpoint")
        if checkpoint is None and self.model.scaler.log_parameters():
            self._begin(dataset["train"], sampler)
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
        self.learning = self._set_up(loss, self.optimizers, own=self.own)
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
            self.extra_learning = self._set_up(self.cotraining, [extra])
            self.optimizers = [*self.optimizers, extra]
        self.stopping = self.done = 0
        self.state: dict[str, Any]
        self.state = {"best": None, "best_step": 0, "seconds": 0.0, "hits": 0.0, "counted": 0}
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
            before, now = run.provenance["machine"]["threads"], torch.get_num_threads()
            if self.processes.count == 1 and before != now:
                warnings.warn(
                    f"{run.path} began with {before} threads and goes on with {now}: the result "
                    f"will be equal to rounding, not bit for bit. Set OMP_NUM_THREADS={before}.",
                    stacklevel=2,
                )

    def _begin(self, split: Split, sampler: EpisodeSampler) -> None:
        """Find the initial scale from the first training tasks (M32)."""
        self.model.to(self.fabric.device)
        rows = sampler.batch(0, FIRST_TASKS)
        tasks = [split.episode(rows[n : n + 1]).to(self.fabric.device) for n in range(FIRST_TASKS)]
        self.given = self.model.scaler.log_parameters()[0].exp().mean().item()
        try:
            begin_at_data(self.model, tasks)
        except ValueError as error:
            raise _explain(error) from error

    def _set_up(
        self, loss: nn.Module, optimizers: list[Optimizer], *, own: bool = False
    ) -> Learning:
        """Move a loss to Fabric's devices, and make the step that lowers it."""
        wrapped: Any = self.fabric.setup(loss, *optimizers) if optimizers else [loss]
        step = Step(optimizers, own=own, steppers=wrapped[1:], backward=self.fabric.backward)
        return wrapped[0].train(), step

    def step(self, step: int, stop: int = 0) -> Metrics:
        """Update all weights once; `stop` asks all processes to stop after it."""
        began = time.perf_counter()
        metrics: Metrics = {"step": step + 1}
        if step == 0 and self.given is not None:
            metrics["scale_init"] = self.given
        extra = self.cotraining
        due = extra is not None and extra.due(step)
        if extra and (due or extra.plan.statistics == "always"):
            batch = [tensor.to(self.fabric.device) for tensor in extra.batch(step)]
            if due:
                metrics |= self._update(self.extra_learning, step, stop, "cotraining_", *batch)
            else:
                with torch.no_grad():  # batch norm alone notices
                    self.extra_learning[0](*batch)
        if not (extra and due and extra.plan.replace):
            index, episode = self.feed(step)
            task, tensors = (index, episode.n_way), episode.to(self.fabric.device).tensors
            metrics |= self._update(self.learning, step, stop, "", *task, **tensors)
            self.state["hits"] += metrics["accuracy"]
            self.state["counted"] += 1
        self.state["seconds"] += time.perf_counter() - began
        metrics["seconds"] = self.state["seconds"]
        if schedules := self.learning[1].schedules:
            metrics["lr"] = schedules[0].rates[0] * self.config.rate_factor(step)
        if self.own:
            metrics["lr_scaler"] = own_lr(self.model.scaler)
        return metrics

    def _update(
        self, learning: Learning, step: int, stop: int, prefix: str, *inputs: Any, **named: Any
    ) -> Metrics:
        """Update the weights by one loss. Raises Interrupted if the loss is not finite."""
        loss, take_step = learning
        try:
            terms = loss(*inputs, **named)
        except ValueError as error:
            if (known := _explain(error)) is not error:
                raise known from error
            raise self._diverged(step + 1, str(error)) from error
        metrics = self._gather(terms, stop)
        for name in ("nll", "kl", "aux", "loss"):
            if not math.isfinite(metrics.get(name, 0.0)):
                raise self._diverged(step + 1, f"{prefix}{name} became {metrics[name]}.")
        factor, clip = self.config.rate_factor(step), self.config.clip
        take_step(terms["loss"], factor=factor, clip=clip, clip_by=self.config.clip_by)
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
        accuracy, half = interval(scores.accuracy)
        found = {"val_accuracy": accuracy, "val_ci95": half, "val_nll": float(scores.nll.mean())}
        if self.cotraining and len(self.cotraining.held_out):
            found["cotraining_val_accuracy"] = self.cotraining.held_out_accuracy()
        score = -found["val_nll"] if self.config.select_by == "nll" else accuracy
        if self.config.select_by == "training":  # since the last validation
            score = self.state["hits"] / max(self.state["counted"], 1)
        self.state |= {"hits": 0.0, "counted": 0}
        self.state["seconds"] += time.perf_counter() - began
        if self.state["best"] is None or score > self.state["best"]:
            self.state |= {"best": score, "best_step": step + 1}
            self.state |= {"val_accuracy": accuracy, "val_ci95": half}
            self.save("best", step + 1)
        return found

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
        best = self.state["best_step"] or self.steps
        if not self.state["best_step"]:
            self.save("best", self.steps)
        scale = follow_scale(read_metrics(self.run.path)) if self.model.scaler.learned else {}
        if scale:
            scale["log"] = int(bool(self.model.scaler.log_parameters()))
        weights = weights_hash(self.model)
        if self.config.relearn:
            scale |= self._relearn()
        result = {
            "steps": self.steps,
            "best_step": best,
            **{name: self.state.get(name) for name in ("val_accuracy", "val_ci95")},
            "scale": scale,
            "weights_sha256": weights,
            "seconds": self.state["seconds"],
        }
        if self.processes.rank == 0:
            write_whole(self.run.path / RESULT, json.dumps(result, indent=1).encode())

    def _relearn(self) -> dict[str, float]:
        """Fit the scale of the best model to the validation classes, and save it (M32).

        It is saved after all steps, beside the model as trained: what is killed here starts again.
        """
        assert self.validation is not None
        split, sampler = self.validation
        self.fabric.barrier()  # one process writes what all read
        found = newest_checkpoint(self.run.path / "best")
        if found is None:
            raise Interrupted(f"{self.run.path / 'best'} is missing or damaged. Train again.")
        restore_module(self.model, found.tensors)
        self.model.eval()
        device, host = self.fabric.device, self.model.host
        rows, tasks = sampler.batch(0, self.config.val_episodes), []
        if host.conditioned:  # the embedding of an item depends on its task
            with torch.no_grad():
                for n in range(self.config.val_episodes):
                    task = split.episode(rows[n : n + 1]).to(device)
                    tasks.append(replace_items(task, *host.embed(task)))
        else:
            table = embed_split(self.model, split, device, self.processes)
            tasks.append(episode_of(table, rows))
        before = self.model.posterior(tasks[0].support, tasks[0].query).mean.mean().item()
        factor = rescale(self.model, tasks)
        self.save("best", self.steps + 1)
        return {"trained": before, "relearned": before * factor}

    def _gather(self, terms: dict[str, Tensor], stop: int) -> Metrics:
        """Gather the metrics of all processes, and whether one of them has to stop."""
        flag = torch.full_like(terms["loss"], stop)
        here = torch.stack([t.detach().to(flag) for t in (*terms.values(), flag)])
        everywhere = self.processes.gather(here).cpu()  # (process, term): one wait for the device
        self.stopping = int(everywhere[:, -1].max())
        values = dict(zip(terms, everywhere.mean(0).tolist(), strict=False))
        extremes = zip(("scale_min", "scale_max"), everywhere.aminmax(dim=0), strict=True)
        for name, extreme in extremes:
            if name in values:
                values[name] = float(extreme[list(terms).index(name)])
        return values

    def _diverged(self, step: int, what: str) -> Interrupted:
        path, lower = self.run.path, f"--lr {self.config.lr / 10:g}"
        if self.own and not self.model.scaler.log_parameters():  # plain SGD of the scaler's own
            lower += f" --scaler_options.lr {own_lr(self.model.scaler) / 10:g}"
        return Interrupted(
            f"Step {step}: {what} The learning rate is probably too high. Train again from step 0 "
            f"with a lower one: varscale train --config {path / CONFIG} {lower} --out {path}-2. "
            "(varscale resume would repeat the same steps.)"
        )


def _explain(error: ValueError) -> ValueError:
    """Say what batch norm means; any other error is returned as it is."""
    if "more than 1 value per channel" in str(error):
        text = "A batch of one image has no batch statistics. Use more supports or queries."
        return ValueError(text)
    return error
