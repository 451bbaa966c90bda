"""A batch of few-shot tasks."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from varscale.core.labels import check_labels, check_support
from varscale.core.tensors import is_readable


@dataclass(frozen=True, eq=False)
class Episode:
    """A batch of tasks of one size: labelled supports, and queries to classify.

    Items may be images or embeddings; classes may have unequal numbers of supports. Values are
    checked once, here, and only on the CPU: make episodes there and move them with `to`.

    Args:
        support: Support items; the first axis is the task.
        support_labels: Class of each support, 0..n_way-1.
        query: Query items; may be empty.
        query_labels: Class of each query; `None` if unknown.
        n_way: Classes per task.

    Example:
        >>> images = torch.rand(1, 4, 3, 84, 84)
        >>> Episode(images, torch.tensor([[0, 0, 1, 1]]), images, None, n_way=2)
        Episode(1 task, 2-way, 4 supports, 4 queries, item 3x84x84)
    """

    support: Float[Tensor, "task support *item"]
    support_labels: Integer[Tensor, "task support"]
    query: Float[Tensor, "task query *item"]
    query_labels: Integer[Tensor, "task query"] | None
    n_way: int

    def __post_init__(self) -> None:
        for role, items, labels in (
            ("support", self.support, self.support_labels),
            ("query", self.query, self.query_labels),
        ):
            _check_items(items, role)
            if labels is None:
                continue
            if labels.shape != items.shape[:2]:
                raise ValueError(
                    f"Expected one label per {role}, shape {tuple(items.shape[:2])}, got "
                    f"{tuple(labels.shape)}. The first axis is the task; pass one task as x[None]."
                )
            check_labels(labels, self.n_way, role=role)
            object.__setattr__(self, f"{role}_labels", labels.long())
        check_support(self.support_labels, self.n_way)
        if not self.n_tasks:
            raise ValueError(f"Expected at least one task, got items {tuple(self.support.shape)}.")
        if self.support.shape[0] != self.query.shape[0]:
            raise ValueError(
                "Expected supports and queries of the same tasks, got "
                f"{self.support.shape[0]} and {self.query.shape[0]} tasks."
            )
        if self.support.shape[2:] != self.query.shape[2:]:
            raise ValueError(
                "Expected support and query items of the same shape, got "
                f"{tuple(self.support.shape[2:])} and {tuple(self.query.shape[2:])}."
            )

    @classmethod
    def trust(cls, **fields: Any) -> "Episode":
        """Make an episode without the checks, from tensors that are known to be valid."""
        episode = object.__new__(cls)
        vars(episode).update(fields)
        return episode

    @property
    def n_tasks(self) -> int:
        """Number of tasks in the batch."""
        return self.support.shape[0]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Items and labels by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def to(
        self, device: torch.device | str | None = None, *, dtype: torch.dtype | None = None
    ) -> "Episode":
        """Move the tasks to a device, or convert their items to a floating-point type."""
        moved = {
            name: tensor.to(device, dtype if tensor.is_floating_point() else None)
            for name, tensor in self.tensors.items()
        }
        return Episode.trust(**{**vars(self), **moved})

    def __repr__(self) -> str:
        tasks, supports = self.support.shape[:2]
        item = "x".join(map(str, self.support.shape[2:]))
        return (
            f"Episode({tasks} task{'s' * (tasks != 1)}, {self.n_way}-way, {supports} supports, "
            f"{self.query.shape[1]} queries, item {item})"
        )


def _check_items(items: Tensor, role: str) -> None:
    if items.ndim < 3:
        raise ValueError(
            f"Expected {role} items of shape (task, {role}, ...), got {tuple(items.shape)}. "
            "Pass one task as x[None]."
        )
    if not items.is_floating_point():
        raise ValueError(
            f"Expected floating-point {role} items, got {items.dtype}. "
            "Convert images to 0..1: x.float() / 255."
        )
    if items.numel() and is_readable(items) and not torch.stack(items.aminmax()).isfinite().all():
        bad = int((~items.isfinite()).flatten(2).any(-1).sum())
        raise ValueError(
            f"Expected finite {role} items, got NaN or infinity in {bad} of "
            f"{items.shape[0] * items.shape[1]}. Remove them, or find out where they come from."
        )
