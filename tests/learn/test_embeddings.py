"""Learning a scaler on embeddings that stay as they are."""

import numpy as np
import pytest
import torch

import varscale
from varscale.data.mixed import MixedTasks
from varscale.learn import learn_scaler


@pytest.mark.parametrize("likelihood", ["sum", "mean"])
def test_a_rate_of_the_scalers_own_follows_the_queries_of_each_shape(likelihood):
    """Shapes of 20 and 80 queries: at each step the rate is lr times the queries of that step."""

    def model():
        return varscale.create(
            backbone="identity",
            backbone_options={"dim": 6},
            metric="cosine",
            scaler="svs",
            scaler_options={"family": "normal", "init": 5.0, "lr": 0.01, "kl_weight": 0.1},
            objective_options={"likelihood": likelihood},
        ).double()

    labels = np.arange(20).repeat(10)
    table = torch.randn(200, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tasks = MixedTasks(labels, ways=(5, 20), shots=(1,), n_query=4)
    assert [sampler.queries_per_task for _, sampler in tasks.parts] == [20, 80]
    learned, plain = model(), model()
    learn_scaler(learned, table, tasks, steps=4, tasks_per_step=2)
    for step in range(4):
        rows = tasks.batch(step, 2)
        episode = varscale.Episode(
            table[rows.support], rows.support_labels, table[rows.query], rows.query_labels,
            n_way=rows.n_way,
        )  # fmt: skip
        loss = plain.loss(episode, index=2 * step).total
        (gradient,) = torch.autograd.grad(loss, [plain.scaler.loc])
        queries = rows.query.shape[1] if likelihood == "sum" else 1
        with torch.no_grad():
            plain.scaler.loc -= 0.01 * queries * gradient
    torch.testing.assert_close(learned.scaler.loc, plain.scaler.loc)
