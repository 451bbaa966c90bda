"""Score a model on seeded test tasks: embed every item once, then score all tasks together."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import save
from torch import Tensor

from varscale.core.files import write_whole
from varscale.core.processes import ALONE, Processes
from varscale.data import EpisodeSampler, Split
from varscale.evaluation.metrics import (
    BINS,
    brier_score,
    calibration_bins,
    expected_calibration_error,
    interval,
)
from varscale.model import ScaledModel
from varscale.model.rows import predict_rows

CHUNK = 1 << 22
"""Numbers in the tasks that are scored at once, few enough to stay in the cache."""

MOST_CLASSES = 2000
"""With more classes there is no confusion matrix, whose size is their number squared."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of a model on test tasks.

    Attributes:
        accuracy: Accuracy of each task.
        nll: Mean negative log-likelihood of a query, for each task.
        brier: Mean Brier score of a query, for each task (M18).
        bins: Calibration bins of all queries; see `metrics.calibration_bins`.
        hits: Correctly classified queries of each class.
        queries: Queries of each class.
        confusion: How often a query of the row's class was classified as the column's; `None` with
            more than 2,000 classes.
        class_names: The classes.
    """

    accuracy: Float[Tensor, " episode"]
    nll: Float[Tensor, " episode"]
    brier: Float[Tensor, " episode"]
    bins: Float[Tensor, "3 bins"]
    hits: Int[Tensor, " class"]
    queries: Int[Tensor, " class"]
    confusion: Int[Tensor, "class class"] | None
    class_names: tuple[str, ...]

    @property
    def ece(self) -> float:
        """Expected calibration error (M19)."""
        return expected_calibration_error(self.bins)

    def summary(self) -> dict[str, Any]:
        """Figures as fractions of 1, with intervals over tasks (M20)."""
        accuracy, accuracy_ci = interval(self.accuracy)
        nll, nll_ci = interval(self.nll)
        rates = (self.hits.double() / self.queries).tolist()
        classes = zip(self.class_names, rates, self.queries, strict=True)
        return {
            "accuracy": accuracy,
            "ci95": accuracy_ci,
            "nll": nll,
            "nll_ci95": nll_ci,
            "ece": self.ece,
            "brier": float(self.brier.mean()),
            "episodes": len(self.accuracy),
            "per_class": {name: rate for name, rate, n in classes if n},
        }


def compare(a: Evaluation, b: Evaluation) -> dict[str, Any]:
    """Compare evaluations on the same tasks: their figures, and the paired differences (M20)."""
    figures: dict[str, Any] = {"a": a.summary(), "b": b.summary()}
    for side in figures.values():
        del side["per_class"]
    figures["difference"], figures["ci95"] = interval(b.accuracy - a.accuracy)
    figures["nll_difference"], figures["nll_ci95"] = interval(b.nll - a.nll)
    return figures


@torch.inference_mode()
def evaluate(
    model: ScaledModel,
    split: Split,
    sampler: EpisodeSampler,
    *,
    episodes: int = 10_000,
    samples: int = 0,
    one_by_one: bool = False,
    processes: Processes = ALONE,
) -> Evaluation:
    """Score a model on the first tasks of a sampler.

    Every item of the split is embedded once, then all tasks are scored together. If the embedding
    depends on the task (`Host.conditioned`), each task is embedded separately.

    Args:
        model: The model; its mode (training or evaluation) does not change.
        split: Items and classes.
        sampler: Draws tasks from `split.labels`.
        episodes: Number of tasks.
        samples: Draws of the scale to average over; 0 for its mean. See `ScaledModel.forward`.
        one_by_one: Embed each task separately, one after the other, as is usual elsewhere. The
            figures are the same; it takes a hundred times as long.
        processes: Processes that share the work.
    """
    if episodes < 1:
        raise ValueError(f"Expected at least one episode, got {episodes}.")
    device, mode = next(model.parameters(), torch.empty(0)).device, model.training
    model.eval()
    separately = one_by_one or model.host.conditioned
    tally = _Tally(split, sampler)
    share = processes.share(episodes)
    if not separately:
        table = embed_split(model, split, device, processes)
    size = (int(sampler.shots.sum()) + sampler.queries_per_task) * (
        int(np.prod(split.dataset.items.shape[1:])) if separately else model.host.out_dim
    )
    chunk = 1 if one_by_one else max(1, CHUNK // size)
    draws = {"samples": samples, "seed": sampler.seed}
    for start in range(share.start, share.stop, chunk):
        rows = sampler.batch(start, min(chunk, share.stop - start))
        if separately:
            episode = split.episode(rows).to(device)
            log_p = model(episode, index=start, **draws)
        else:
            log_p = predict_rows(model, table, rows, index=start, **draws)
        tally.add(log_p.cpu(), rows.query_labels, rows.classes)
    model.train(mode)
    return tally.result(processes, episodes)


@torch.inference_mode()
def embed_split(
    model: ScaledModel, split: Split, device: torch.device, processes: Processes = ALONE
) -> Float[Tensor, "item dim"]:
    """Embed every item of a split in batches, shared between processes."""
    share = processes.share(len(split))
    size = 64 if split.dataset.is_images else 4096
    parts = [torch.empty(0, model.host.out_dim, device=device)]
    for start in range(share.start, share.stop, size):
        items = split.items(torch.arange(start, min(start + size, share.stop)))
        parts.append(model.host.embed_items(items.to(device).unsqueeze(0))[0])
    return processes.join(torch.cat(parts), len(split))


def save_evaluation(folder: Path, report: Mapping[str, Any], scores: Evaluation) -> None:
    """Store figures as JSON, and beside them the tensors behind them as safetensors."""
    folder.mkdir(exist_ok=True)
    shots = "-".join(map(str, np.ravel(report["n_shot"])))
    name = f"{report['dataset']}-{report['split']}-{report['n_way']}w{shots}s{report['n_query']}q"
    name += "r" if report["queries"] == "random" else ""
    name += f"-{report['episodes']}-seed{report['seed']}-samples{report['samples']}"
    name += "" if report["precision"] == "32-true" else f"-{report['precision']}"
    tensors = {k: v for k, v in vars(scores).items() if isinstance(v, Tensor)}
    content = save({key: value.contiguous() for key, value in tensors.items()})
    write_whole(folder / f"{name}.safetensors", content)
    figures = {**report, "class_names": scores.class_names}
    write_whole(folder / f"{name}.json", json.dumps(figures, indent=1).encode())


class _Tally:
    """Running counts of the predictions."""

    def __init__(self, split: Split, sampler: EpisodeSampler) -> None:
        self.ids = torch.from_numpy(sampler.class_ids.astype(np.int64))
        self.names = tuple(split.dataset.class_names[i] for i in self.ids)
        n = len(self.ids)
        self.per_task: list[Tensor] = []  # (3, task): accuracy, nll, brier
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # confidence, true, guessed
        self.bins = torch.zeros(3, BINS, dtype=torch.float64)
        self.hits = torch.zeros(n, dtype=torch.long)
        self.queries = torch.zeros(n, dtype=torch.long)
        self.confusion = torch.zeros(n if n <= MOST_CLASSES else 0, n, dtype=torch.long)

    def add(self, log_p: Tensor, labels: Tensor, classes: Tensor) -> None:
        """Add tasks: (task, query, way), (task, query) and (task, way)."""
        top, guess = log_p.max(-1)
        nll = -log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        values = (guess == labels, nll, brier_score(log_p, labels))
        figures = torch.stack([v.double().mean(-1) for v in values])
        if figures.isnan().any():
            raise ValueError(
                "Expected probabilities, got NaN. The model's weights have diverged: return to an "
                "earlier checkpoint, with a lower learning rate."
            )
        self.per_task.append(figures)
        place = torch.searchsorted(self.ids, classes.contiguous())
        self.waiting.append((top, place.gather(1, labels), place.gather(1, guess)))
        if len(self.waiting) >= 100:  # counting costs as much for one chunk as for many
            self._count()

    def _count(self) -> None:
        if not self.waiting:
            return
        top, true, guessed = (
            torch.cat([p.flatten() for p in part]) for part in zip(*self.waiting, strict=True)
        )
        self.waiting.clear()
        n, hit = len(self.ids), true == guessed
        self.bins += calibration_bins(top.exp(), hit)
        self.queries += torch.bincount(true, minlength=n)
        self.hits += torch.bincount(true, hit, minlength=n).long()
        if len(self.confusion):
            self.confusion += torch.bincount(true * n + guessed, minlength=n * n).view(n, n)

    def result(self, processes: Processes, episodes: int) -> Evaluation:
        """Combine the tasks of all processes."""
        self._count()
        parts = torch.cat([torch.empty(3, 0, dtype=torch.float64), *self.per_task], dim=1)
        accuracy, nll, brier = processes.join(parts.T.contiguous(), episodes).T
        counts = [self.bins, self.hits, self.queries, self.confusion]
        bins, hits, queries, confusion = (processes.gather(c).sum(0) for c in counts)
        matrix = confusion if len(confusion) else None
        return Evaluation(accuracy, nll, brier, bins, hits, queries, matrix, self.names)
