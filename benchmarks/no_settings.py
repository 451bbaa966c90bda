"""Whether a learned scale needs settings: the default beside grids, rivals and initial values.

    varscale data prepare omniglot omniglot_28x28.npz
    varscale data prepare miniimagenet32 miniimagenet_84x84.zip --format miniimagenet --size 32
    python benchmarks/pictures.py miniimagenet_84x84.zip FOLDER
    varscale data prepare pictures FOLDER --size 32 --split 60/20/20
    varscale data prepare banking77 banking77_minilm.npz
    varscale data prepare clinc150 clinc150_minilm.npz
    OMP_NUM_THREADS=1 python benchmarks/no_settings.py

Every method trains the same network on the same tasks; only the scale differs. A run is scored at
each length with the model that was best in validation by then, on 2,000 test tasks (15 queries a
class, from the first 100 items of each class). Writes
`no_settings.csv`, row by row: run it again to go on, with `--only` for one dataset.
"""

import argparse
import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from rows import append_rows, read_rows
from torch import Tensor, nn
from torch.distributions import Normal

from varscale.core.allocator import keep_memory
from varscale.core.episode import Episode
from varscale.data import Dataset, EpisodeSampler
from varscale.data.feed import Feed
from varscale.evaluation import evaluate
from varscale.evaluation.evaluation import embed_split
from varscale.learn import optimizers
from varscale.learn.optimizers import steps_itself
from varscale.learn.rescaling import FIRST_TASKS, begin_at_data, rescale
from varscale.learn.step import Step
from varscale.model import ScaledModel
from varscale.model.rows import episode_of
from varscale.runs import TrainConfig
from varscale.runs.config import resolve, validation
from varscale.scalers import SCALERS, Scaler
from varscale.scalers.posterior import gaussian

FILE = Path(__file__).with_name("no_settings.csv")
CPU = torch.device("cpu")
IMAGES = {"backbone": "conv4", "n_query": 5}
TEXTS = {"backbone": "linear", "n_query": 15}
DATASETS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "banking77": ({**TEXTS, "n_shot": 1}, (100, 300, 1000)),
    "clinc150": ({**TEXTS, "n_shot": 1}, (100, 300, 1000)),
    "glyphs": ({**IMAGES, "n_shot": 1, "val_items": 10}, (100, 300, 1000)),
    "pictures": ({**IMAGES, "n_shot": 5}, (100, 300, 1000)),
    "omniglot": ({**IMAGES, "n_shot": 1, "val_items": 10}, (100, 300, 1000)),
    "miniimagenet32": ({**IMAGES, "n_shot": 5, "val_items": 40}, (100, 300, 1000)),
}
"""Options of the tasks, and the lengths of training that are scored."""
GRID = (1.0, 3.0, 10.0, 30.0, 100.0)
INITS = (0.1, 1.0, 10.0, 100.0, 1000.0)
SEEDS, EPISODES, VAL_EVERY = 3, 2000, 100
LONG, LONG_DATASETS = 3000, ("omniglot", "miniimagenet32")
"""Steps of the long runs."""


@SCALERS.register("clip")
class Clip(Scaler):
    """The temperature of CLIP: one more weight, exponentiated, from 1 / 0.07; at most 100.

    Args:
        init: Its initial value.
        clamp: Keep it at 100 or less.
    """

    own_rate = False
    local = False

    def __init__(self, *, init: float = 1 / 0.07, clamp: bool = True) -> None:
        super().__init__(size=1)
        self.loc = nn.Parameter(torch.tensor([math.log(init)]))
        self.clamp = clamp

    def forward(self, task: Float[Tensor, "*task dim"]) -> Normal:
        """The current point, for every task."""
        loc = self.loc.exp().expand(*task.shape[:-1], 1)
        return gaussian(loc, torch.zeros_like(loc))

    @torch.no_grad()
    def project_(self) -> None:
        """Clamp, as CLIP does after every step."""
        if self.clamp:
            self.loc.clamp_(max=math.log(100))


def adapt_scale(model: ScaledModel, task: Episode) -> None:
    """Set the scale as AdaCos does, from the cosines of a task (Zhang et al., 2019, eq. 15)."""
    assert task.query_labels is not None
    with torch.no_grad():
        support, query = model.host.embed(task)
        references = model.host.references(support, task.support_labels, n_way=task.n_way)
        cosine = model.host.logits(query, references, task.support_labels, 1.0, n_way=task.n_way)
        own = torch.nn.functional.one_hot(task.query_labels, task.n_way).bool()
        scale = model.scaler.loc
        others = (scale * cosine).exp().masked_fill(own, 0.0).sum(-1).mean()
        angle = cosine[own].clamp(-1, 1).acos().median()
        model.scaler.loc = others.log().reshape(1) / angle.clamp(max=math.pi / 4).cos()


@dataclass(frozen=True)
class Method:
    """A way to get a scale.

    Attributes:
        scaler: Options of `TrainConfig`.
        before_step: What happens to the scale before a step.
    """

    options: dict[str, Any]
    before_step: Callable[[ScaledModel, Episode], None] | None = None


METHODS = {
    "SVS": Method({"scaler": "svs"}),
    "D-SVS": Method({"scaler": "d-svs"}),
    "D-AVS": Method({"scaler": "d-avs"}),
    **{
        f"fixed {alpha:g}": Method({"scaler": "fixed", "scaler_options": {"alpha": alpha}})
        for alpha in GRID
    },
    "published SVS": Method({"scaler": "svs", "preset": "reproduction"}),
    "learned weight": Method({"scaler": "clip", "scaler_options": {"clamp": False}}),
    "AdaCos": Method(
        {"scaler": "fixed", "scaler_options": {"alpha": math.sqrt(2) * math.log(4)}}, adapt_scale
    ),
}
RIVALS = [m for m in METHODS if m not in ("fixed 1", "fixed 3", "published SVS", "AdaCos")]
"""On images the other four are far behind and wait."""
FROM = {
    f"{name} from {init:g}": Method(
        {**options, "scaler_options": {**options.get("scaler_options", {}), "init": init}}
    )
    for name in ("SVS", "published SVS", "learned weight")
    for init in INITS
    for options in [METHODS[name].options]
}
"""The same from initial values given by hand; a fixed scale is its own."""
FROM_DATASETS = ("banking77", "glyphs")


@dataclass(frozen=True)
class Row:
    """One model and its test; accuracies and ECE in per cent.

    Attributes:
        last_scale: Mean of the scale at the last step.
        scale: That of the model that was tested.
        relearned: Whether its scale was fitted to the validation classes.
        val_nll: NLL of the validation tasks, before that.
    """

    dataset: str
    method: str
    seed: int
    steps: int
    relearned: int
    best_step: int
    begin: float
    last_scale: float
    scale: float
    val_accuracy: float
    val_nll: float
    accuracy: float
    nll: float
    ece: float


def scale_of(model: ScaledModel, table: Tensor) -> float:
    """Mean of the scale of a task of all items."""
    with torch.no_grad():
        return model.posterior(table[None], table[None]).mean.mean().item()


def make_plan(names: Sequence[str]) -> list[tuple[str, str, int, int]]:
    """Every run as dataset, method, seed and steps; the cheap ones first."""
    texts = [name for name in names if DATASETS[name][0]["backbone"] == "linear"]
    images = [name for name in names if name not in texts]
    plan = [(n, m, seed, 1000) for seed in range(SEEDS) for n in texts for m in METHODS]
    plan += [(n, m, 0, 1000) for n in FROM_DATASETS if n in names for m in FROM]
    plan += [(n, m, seed, 1000) for seed in range(SEEDS) for n in images for m in RIVALS]
    return plan


def make_later_plan(names: Sequence[str]) -> list[tuple[str, str, int, int]]:
    """What can wait: the long runs, what the verdicts need first, and rivals far behind."""
    images = [name for name in names if DATASETS[name][0]["backbone"] != "linear"]
    long = [name for name in LONG_DATASETS if name in names]
    first = ["SVS", "fixed 30", "fixed 100", "fixed 10"]
    others = [m for m in METHODS if m not in first]
    behind = [m for m in METHODS if m not in RIVALS]
    plan = [(n, m, seed, LONG) for seed in range(SEEDS) for n in long for m in first]
    plan += [(n, m, seed, 1000) for seed in range(SEEDS) for n in images for m in behind]
    return plan + [(n, m, seed, LONG) for seed in range(SEEDS) for n in long for m in others]


def run(name: str, method: str, seed: int, steps: int) -> list[Row]:
    """Train, and score at every length."""
    task, lengths = DATASETS[name]
    lengths = (*lengths, *((steps,) if steps not in lengths else ()))
    dataset = Dataset.open(name)
    options = {**task, **(METHODS | FROM)[method].options, "seed": seed, "steps": max(lengths)}
    config = resolve(TrainConfig(dataset=name, metric="cosine", **options), dataset)
    train, model = dataset["train"], config.model()
    sampler = config.sampler(train.labels, "train")
    feed = Feed(train, sampler, config.tasks_per_step)
    val, val_tasks = validation(config, dataset)
    test = dataset["test"].first(100)
    test_tasks = EpisodeSampler(
        test.labels, n_way=config.val_way or 5, n_shot=config.n_shot, n_query=15, stream="test"
    )
    model.train()
    if model.scaler.log_parameters():
        begin_at_data(model, [feed(step)[1] for step in range(FIRST_TASKS)])
    found = optimizers(model, queries_per_task=sampler.queries_per_task, lr=config.lr)
    take_step = Step(found, own=steps_itself(model.scaler))
    best, rows = (-1.0, 0.0, 0, model), []
    for step in range(max(lengths)):
        index, episode = feed(step)
        before = (METHODS | FROM)[method].before_step
        if before is not None:
            before(model, episode)
        loss = model.loss(episode, index=index, seed=seed)
        now = loss.q.mean.mean().item()
        begin = now if step == 0 else begin
        take_step(loss.total, factor=config.rate_factor(step))
        if (step + 1) % VAL_EVERY == 0:
            scores = evaluate(model, val, val_tasks, episodes=config.val_episodes).summary()
            if scores["accuracy"] > best[0]:
                best = scores["accuracy"], scores["nll"], step + 1, copy.deepcopy(model)
        if step + 1 in lengths:
            for relearned in range(2 if best[3].scaler.log_parameters() else 1):
                chosen = copy.deepcopy(best[3]).eval()
                table = embed_split(chosen, val, CPU)
                if relearned:
                    rescale(chosen, [episode_of(table, val_tasks.batch(0, config.val_episodes))])
                figures = evaluate(chosen, test, test_tasks, episodes=EPISODES).summary()
                rows.append(
                    Row(
                        name, method, seed, step + 1, relearned, best[2], begin, now,
                        scale_of(chosen, table), 100 * best[0], best[1],
                        100 * figures["accuracy"], figures["nll"], 100 * figures["ece"],
                    )
                )  # fmt: skip
    return rows


def main() -> None:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(DATASETS), help="datasets")
    parser.add_argument("--later", action="store_true", help="the runs that can wait instead")
    parser.add_argument("--part", default="0/1", help="every n-th run: 0/2 and 1/2 share the work")
    arguments = parser.parse_args()
    keep_memory()
    part, parts = (int(number) for number in arguments.part.split("/"))
    plan = make_later_plan(arguments.only) if arguments.later else make_plan(arguments.only)
    for name, method, seed, steps in plan[part::parts]:
        done = {(r.dataset, r.method, r.seed, r.steps) for r in read_rows(FILE, Row)}
        if (name, method, seed, steps) in done:
            continue
        try:
            rows = [row for row in run(name, method, seed, steps)
                    if (name, method, seed, row.steps) not in done]  # fmt: skip
        except ValueError as error:  # AdaCos diverges where all cosines are near 1 at first
            print(name, method, seed, error, flush=True)
            continue
        append_rows(FILE, rows)
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
