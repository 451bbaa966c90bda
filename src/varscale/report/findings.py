"""What can be said about a fitted classifier and about items, as plain numbers and names."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from varscale.classifier import FewShotClassifier
from varscale.classifier.left_out import Judged
from varscale.evaluation.metrics import (
    calibration_bins,
    expected_calibration_error,
    share_interval,
)

MOST = 1000
"""Suspicious labels to list, at most."""
PAIRS, LEAST_RATE = 10, 0.01
"""Confused classes to list, at most, and the share from which on they count as confused."""
STEPS = (0, 1, 2, 3, 5, 10, 20, 50, 100)
"""Further examples of each class at which to tell the accuracy, up to what was asked."""
SPEAKERS = 3
"""Examples to name for an answer."""
CHUNK = 1 << 22
"""Probabilities held in memory at once."""


def describe_examples(classifier: FewShotClassifier, *, more: int | None) -> dict[str, Any]:
    """Describe what the examples of a classifier say about each other.

    Args:
        classifier: A fitted one.
        more: Further examples of each class for which to tell the accuracy; `None` tells none, and
            saves the fits that this takes.
    """
    counts = classifier.counts_
    facts: dict[str, Any] = {
        "classes": len(counts),
        "examples": int(counts.sum()),
        "fewest": int(counts.min()),
        "single": int((counts == 1).sum()),
        "accuracy": None,
        "reliability": [],
        "suspicious": [],
        "confusions": [],
        "expected": [],
    }
    if len(counts) < 2:
        return facts | {"note": "There is one class, so there is nothing to confuse it with."}
    try:
        judged = classifier.judge_examples()
    except ValueError as error:
        return facts | {"note": str(error)}
    labels, classes = classifier.labels_, classifier.classes_.tolist()
    hits = (judged.guess == labels)[judged.judged]
    facts |= score_answers(hits, judged.confidence[judged.judged])
    facts["single"] = len(np.unique(labels[~judged.judged]))  # a name takes the place of an example
    facts["suspicious"] = list(_suspicious(judged, labels, classes))
    facts["confusions"] = [
        {"first": classes[a], "second": classes[b], "rate": float(rate)}
        for (a, b), rate in zip(judged.pairs[:PAIRS], judged.rate[:PAIRS], strict=True)
        if rate >= LEAST_RATE
    ]
    if more is not None and counts.max() > 1:
        steps = sorted({*(step for step in STEPS if step < more), more})
        told = zip(steps, classifier.expected_accuracies(steps), strict=True)
        facts["expected"] = [{"more": step, **expected._asdict()} for step, expected in told]
    return facts


def describe_items(
    classifier: FewShotClassifier,
    embeddings: np.ndarray,
    labels: np.ndarray | None,
    *,
    n_next: int,
) -> dict[str, Any]:
    """Describe items: what to label next, or how well their labels fit."""
    facts: dict[str, Any] = {"items": len(embeddings)}
    if labels is None:
        rows = classifier.next_to_label(embeddings, n_next)
        probability = classifier.predict_proba(embeddings[rows])
        places, cosines = classifier.nearest(embeddings[rows], SPEAKERS)
        classes = classifier.classes_.tolist()
        facts["next"] = [
            {
                "item": int(row),
                "class": classes[int(p.argmax())],
                "probability": float(p.max()),
                "nearest": [
                    {"example": int(e), "similarity": float(c)}
                    for e, c in zip(near, cosine, strict=True)
                    if e >= 0
                ],
            }
            for row, p, near, cosine in zip(rows, probability, places, cosines, strict=True)
        ]
        return facts
    known = {str(name): place for place, name in enumerate(classifier.classes_.tolist())}
    own = np.array([known.get(str(label), -1) for label in labels.tolist()])
    guess, confidence, quality = _answers(classifier, embeddings, own)
    inside = own >= 0
    facts["of_other_classes"] = int((~inside).sum())
    facts |= {"accuracy": None, "reliability": [], "suspicious": []}
    if inside.any():
        facts |= score_answers((guess == own)[inside], confidence[inside])
    order = np.argsort(quality, kind="stable")
    wrong = order[(inside & (guess != own))[order]][:MOST]
    classes = classifier.classes_.tolist()
    facts["suspicious"] = [
        {
            "item": int(i),
            "label": classes[own[i]],
            "better": classes[guess[i]],
            "quality": float(quality[i]),
        }
        for i in wrong
    ]
    return facts


def score_answers(hits: np.ndarray, confidence: np.ndarray) -> dict[str, Any]:
    """Accuracy with its interval, and how far confidence and accuracy agree."""
    low, high = share_interval(int(hits.sum()), len(hits))
    bins = calibration_bins(torch.from_numpy(confidence), torch.from_numpy(hits))
    groups = np.array_split(np.argsort(confidence, kind="stable"), _groups(len(hits)))
    return {
        "accuracy": {"mean": float(hits.mean()), "low": low, "high": high, "of": len(hits)},
        "confidence": float(confidence.mean()),
        "calibration_error": expected_calibration_error(bins),
        "reliability": [
            {
                "answers": len(group),
                "confidence": float(confidence[group].mean()),
                "accuracy": float(hits[group].mean()),
            }
            for group in groups
        ],
    }


def _groups(answers: int) -> int:
    """Number of equal groups of answers in a plot of reliability: ten answers each, or more."""
    return min(max(answers // 10, 1), 10)


def _suspicious(judged: Judged, labels: np.ndarray, classes: list[Any]) -> Iterator[dict[str, Any]]:
    order = np.argsort(judged.quality, kind="stable")
    for i in order[(judged.guess != labels)[order]][:MOST].tolist():
        yield {
            "example": i,
            "label": classes[labels[i]],
            "better": classes[judged.guess[i]],
            "quality": float(judged.quality[i]),
        }


def _answers(
    classifier: FewShotClassifier, embeddings: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Likeliest class of each item, its probability, and that of its own label."""
    size = max(1, CHUNK // len(classifier.classes_))
    parts: list[tuple[np.ndarray, ...]] = []
    for start in range(0, len(embeddings), size):
        p = classifier.predict_proba(embeddings[start : start + size]).astype(np.float64)
        label = own[start : start + size]
        quality = p[np.arange(len(p)), label.clip(0)]
        parts.append((p.argmax(1), p.max(1), quality))
    guess, confidence, quality = (np.concatenate(column) for column in zip(*parts, strict=True))
    return guess, confidence, quality
