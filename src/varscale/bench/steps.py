"""Time of training steps, compared with the bare backbone and with steps without a scaler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch

from varscale.backbones import Conv4, ResNet12
from varscale.bench.plain import Plain, training_step
from varscale.bench.synthetic import noise_dataset
from varscale.bench.timing import interleave, ratio_of
from varscale.core.precision import has_bfloat16
from varscale.data import Dataset
from varscale.data.mixed import MixedTasks
from varscale.learn import learn_scaler
from varscale.model import create
from varscale.runs import Run, TrainConfig
from varscale.runs.config import resolve
from varscale.runs.launch import launch
from varscale.runs.logbook import Logbook
from varscale.runs.trainer import Trainer

TASK = {"n_way": 5, "n_shot": 5, "n_query": 15}  # 100 images


@contextmanager
def whole_step(folder: Path, dataset: Dataset, **options: Any) -> Iterator[Callable[[], None]]:
    """Set up a training step as in `varscale train`, including logging."""
    options = {"metric": "cosine", **options}
    config = resolve(TrainConfig(dataset=dataset.name, val_every=0, **options), dataset)
    path = folder / f"{dataset.name}-{config.scaler}-{config.tasks_per_step}-{config.precision}"
    run = Run.create(path, config, dataset)
    fabric = launch(1, accelerator="cpu", precision=config.precision)
    trainer = Trainer(run, config, fabric, dataset)
    numbers = count()
    with Logbook(path, every=config.log_every, done=0, main=True) as book:
        yield lambda: book.write(trainer.step(next(numbers)))


def _images(count: int, channels: int, size: int) -> torch.Tensor:
    """Noise, in the memory order in which Conv-4 is fastest."""
    images = torch.rand(count, channels, size, size)
    return images.contiguous(memory_format=torch.channels_last)


def train_over_floor(folder: Path, repeats: int) -> dict[str, float]:
    """Measure a whole step over forward, backward and Adam of the backbone on a resident batch.

    Also the step in bfloat16, if the CPU has instructions for it, over the same floor in float32.
    """
    ratios = {}
    for size, channels in ((84, 3), (32, 3), (28, 1)):
        dataset = noise_dataset(folder, (size, size, channels), classes=64, per_class=40)
        floor = training_step(
            Conv4(image_size=size, in_channels=channels), _images(100, channels, size)
        )
        turns = repeats if size == 84 else 4 * repeats
        with whole_step(folder, dataset, scaler="svs", **TASK) as ours:
            ratios[f"train_over_floor_{size}"] = ratio_of(ours, floor, repeats=turns)
        if has_bfloat16():
            with whole_step(folder, dataset, scaler="svs", precision="bf16-mixed", **TASK) as ours:
                ratios[f"train_bf16_over_floor_{size}"] = ratio_of(ours, floor, repeats=turns)
    return ratios


def fast_backbone(plain: Plain, repeats: int) -> dict[str, float]:
    """Measure a plain NCHW Conv-4 with the default allocator, in its own process, over ours."""
    ratios = {}
    for size, turns in ((32, 4 * repeats), (84, repeats)):
        ours = training_step(Conv4(image_size=size), _images(100, 3, size))
        theirs = partial(plain, f"train {size}")
        ratios[f"fast_backbone_{size}"] = ratio_of(theirs, ours, repeats=turns)
    return ratios


def scaler_overhead(folder: Path, repeats: int) -> dict[str, float]:
    """Measure a step with a scaler over one without: Conv-4, 84x84, 5-way 5-shot."""
    dataset = noise_dataset(folder, (84, 84, 3), classes=64, per_class=40, name="overhead")
    ratios = {}
    for scaler in ("svs", "d-svs", "d-avs"):
        with (
            whole_step(folder / scaler, dataset, scaler=None, **TASK) as without,
            whole_step(folder, dataset, scaler=scaler, **TASK) as step,
        ):
            key = f"scaler_overhead_{scaler.replace('-', '')}"
            ratios[key] = ratio_of(step, without, repeats=repeats)
    return ratios


def tadam_over_passes(folder: Path, repeats: int) -> dict[str, float]:
    """Measure a step of TADAM over its three backbone passes: ResNet-12, quarter width, 32x32."""
    dataset = noise_dataset(folder, (32, 32, 3), classes=64, per_class=40, name="tadam")
    shape = {"image_size": 32, "width": 0.25}
    tadam = {"host": "tadam", "metric": "norm", "backbone": "resnet12", "backbone_options": shape}
    task = {"n_shot": 5, "n_query": 32, "queries": "random", "tasks_per_step": 2}
    sgd = {"algorithm": "sgd", "weight_decay": 5e-4, "clip": 1.0}
    network = ResNet12(image_size=32, width=0.25)
    supports, queries = _images(50, 3, 32), _images(64, 3, 32)

    def passes() -> None:
        for images in (supports, supports, queries):  # once for the condition, both under it
            network.zero_grad()
            network(images).square().mean().backward()

    with whole_step(folder, dataset, **tadam, **task, **sgd) as step:
        return {"tadam_over_passes": ratio_of(step, passes, repeats=2 * repeats)}


def tasks_per_second(folder: Path, repeats: int) -> dict[str, float]:
    """Measure scaler training on frozen 384-d embeddings: 10-way 1-shot 10-query tasks a second."""
    split = noise_dataset(folder, (384,), classes=50, per_class=150)["train"]
    table = split.items(torch.arange(len(split)))
    tasks = MixedTasks(split.labels, ways=(10,), shots=(1,))
    model = create(
        backbone="identity", backbone_options={"dim": 384}, metric="cosine", scaler="svs"
    )
    steps, batch = 10, 64
    training = partial(learn_scaler, model, table, tasks, steps=steps, tasks_per_step=batch)
    (seconds,) = interleave(training, repeats=2 * repeats)
    return {"tasks_per_s": steps * batch / seconds}
