"""What a run will cost, from the multiply-adds of its backbone: an estimate before it is run."""

from dataclasses import replace

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from varscale.backbones import Backbone
from varscale.paper.sizes import Size
from varscale.runs import TrainConfig

VAL_ITEMS, TEST_ITEMS = 9_600, 12_000
"""Images of miniImageNet's validation and test classes."""

STEP_SECONDS = 1.5e-3
"""What a step costs besides its backbone, about: drawing a task, the scaler, the log."""


def multiply_adds(backbone: Backbone) -> int:
    """Of one item through the convolutions and matrices of a backbone."""
    training = backbone.training
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        backbone.eval()(torch.zeros(1, *backbone.in_shape))
    backbone.train(training)
    return int(counter.get_total_flops()) // 2


def flop(config: TrainConfig, size: Size) -> float:
    """Floating-point operations of a run: training, validation and test.

    A multiply-add is two; a backward pass is twice a forward pass. No dataset is needed.
    """
    if size.image_size is None:  # embeddings made before
        return 0.0
    options = {**config.backbone_options, "image_size": size.image_size}
    host = replace(config, backbone_options=options).model().host
    assert isinstance(host.backbone, Backbone)
    supports = config.n_way * int(np.max(config.n_shot))
    queries = config.n_query * (config.n_way if config.queries == "balanced" else 1)
    task = supports * (2 if host.conditioned else 1) + queries
    steps = config.steps or 0
    images = 3.0 * steps * config.tasks_per_step * task
    if config.cotraining_plan:
        plan = config.cotraining_plan
        images += 3 * plan.batch_size * sum(plan.probability(t, steps) for t in range(steps))
    per_validation = config.val_episodes * task if host.conditioned else VAL_ITEMS
    images += per_validation * (steps / config.val_every if config.val_every else 0)
    images += size.episodes * task if host.conditioned else TEST_ITEMS
    return 2 * multiply_adds(host.backbone) * images


def minutes(config: TrainConfig, size: Size, gflops: float) -> float:
    """How long that takes, and what a step costs besides."""
    steps = config.steps or 0
    return (flop(config, size) / (1e9 * gflops) + steps * STEP_SECONDS) / 60
