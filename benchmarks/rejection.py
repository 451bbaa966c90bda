"""How many known queries are turned away, how many strangers are caught.

    python benchmarks/rejection.py DATA [--episodes 2000]

The scale and the thresholds are learned on training (and validation) classes; a task has 10 known
and 10 unknown test classes, 10 queries of each. Writes `rejection.csv` beside this file. Then come
the start of the scale and the units of the embeddings, which must not matter: `starts.csv`.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from embeddings import DATASETS, QUERIES, Data, score, write
from sklearn.metrics import roc_auc_score
from torch import Tensor

from varscale import FewShotClassifier
from varscale.classifier import Prior
from varscale.data import EpisodeSampler
from varscale.functional import log_softmax, prototypes

WAY, LEVELS = 10, (0.01, 0.05, 0.1)


def base_prior(data: Data, splits: tuple[str, ...]) -> Prior:
    """The default estimator's prior, learned on the classes of these splits."""
    x = torch.cat([data.splits[split][0] for split in splits])
    shift, labels = 0, []
    for split in splits:
        labels.append(data.splits[split][1] + shift)
        shift = int(labels[-1].max()) + 1
    return FewShotClassifier().fit(x.numpy(), np.concatenate(labels)).prior_


def reject(data: Data, prior: Prior, shot: int, episodes: int) -> list[dict]:
    """Shares of known and unknown queries rejected at each level, and areas under the curve."""
    x, y = data.splits["test"]
    sampler = EpisodeSampler(y, 2 * WAY, shot, QUERIES, stream="rejection")
    assert prior.conformity is not None
    count = torch.full((WAY,), shot)
    floors = [prior.conformity.thresholds(count, level) for level in LEVELS]
    known, below, scores = [], [[] for _ in LEVELS], {"ours": [], "max-softmax": [], "energy": []}
    for start in range(0, episodes, 50):
        rows = sampler.batch(start, 50)
        inside = rows.support_labels < WAY
        support = x[rows.support[inside].view(50, -1)]
        labels = rows.support_labels[inside].view(50, -1)
        references = prior.metric.references(prototypes(support, labels, WAY))
        similarity = prior.metric.similarity(x[rows.query], references)
        logits = prior.mean * prior.scale().origin * shot / (shot + prior.shot_offset) * similarity
        known.append(rows.query_labels < WAY)
        for floor, part in zip(floors, below, strict=True):
            part.append((similarity < floor).all(-1))
        scores["ours"].append(similarity.max(-1).values)
        scores["max-softmax"].append(log_softmax(logits).max(-1).values)
        scores["energy"].append(logits.logsumexp(-1))
    is_known = torch.cat(known).flatten()
    areas = {
        f"auroc_{name}": roc_auc_score(is_known.numpy(), torch.cat(part).flatten().numpy())
        for name, part in scores.items()
    }
    lines = []
    for level, part in zip(LEVELS, below, strict=True):
        unknown = torch.cat(part)
        share = unknown.float()[torch.cat(known)].view(episodes, -1).mean(1)
        lines.append(
            {
                "level": level,
                "known_rejected": float(share.mean()),
                "known_ci95": 1.96 * float(share.std()) / episodes**0.5,
                "unknown_rejected": float(unknown.flatten()[~is_known].float().mean()),
                **areas,
            }
        )
    return lines


def in_units(
    prior: Prior, unit: float, support: Tensor, labels: Tensor, query: Tensor, way: int
) -> Tensor:
    """Log-probabilities of one-shot tasks whose embeddings are multiplied by a number."""
    references = prior.metric.references(prototypes(unit * support, labels, way))
    return prior.log_probabilities(unit * query, references, torch.ones(way).long())


def starts(data: Data, scaler: str) -> list[dict]:
    """NLL on test tasks from several starts and in several units."""
    x, y = data.splits["train"]
    lines = []
    cases = [(start, 1.0) for start in (1.0, 10.0, 100.0, 1000.0)] + [(20.0, 1e-3), (20.0, 1e3)]
    for start, unit in cases:
        clf = FewShotClassifier(scaler=scaler, init=start).fit(unit * x.numpy(), y)

        predict = partial(in_units, clf.prior_, unit)
        nll = float(score(data, predict, 10, 1, 500)["nll"].mean())
        lines.append({"scaler": scaler, "start": start, "unit": unit, "nll": nll})
    return lines


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description="Rejection of unknown classes.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--episodes", type=int, default=2000)
    args = parser.parse_args()
    lines, begun = [], []
    for name in DATASETS:
        data = Data(args.data, name)
        for splits in (("train",), ("train", "val")):
            prior = base_prior(data, splits)
            for shot in (1, 5):
                facts = {"dataset": name, "base": "+".join(splits), "base_classes": prior.n_classes}
                facts |= {"way": WAY, "shot": shot, "episodes": args.episodes}
                lines += [{**facts, **line} for line in reject(data, prior, shot, args.episodes)]
                print(*lines[-3:], sep="\n", flush=True)
        for scaler in ("svs", "d-svs"):
            begun += [{"dataset": name, **line} for line in starts(data, scaler)]
            print(*begun[-6:], sep="\n", flush=True)
    write("rejection.csv", lines)
    write("starts.csv", begun)


if __name__ == "__main__":
    main()
