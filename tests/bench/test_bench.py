"""The measurements run and mean what they say; how fast it is, is `varscale bench`'s to tell."""

import numpy as np
import pytest
import torch

from varscale import bench
from varscale.backbones import Conv4
from varscale.bench import plain, samplers, steps, timing
from varscale.bench.synthetic import noise_dataset


@pytest.fixture
def untimed(monkeypatch):
    """Steps are set up, and not timed."""

    class NoProcess(plain.Plain):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __call__(self, job):
            assert job in ("train 32", "train 84", "eval 100")
            return 1.0

    for module in (steps, bench.evaluations):
        monkeypatch.setattr(module, "ratio_of", lambda *_, **__: 1.5)
        monkeypatch.setattr(module, "has_bfloat16", lambda: True)
    monkeypatch.setattr(bench, "Plain", NoProcess)
    monkeypatch.setattr(bench.processes, "_seconds", lambda *_, devices, **__: 2.0 / devices)
    monkeypatch.setattr(bench.processes, "noise_dataset", lambda *_, **__: None)


def test_every_ratio_of_the_product_is_measured(untimed):
    ratios = {ratio.key: ratio for ratio in bench.run(repeats=1)}
    assert set(ratios) == {
        "train_over_floor_84", "train_over_floor_32", "train_over_floor_28",
        "fast_backbone_32", "fast_backbone_84",
        "scaler_overhead_svs", "scaler_overhead_dsvs", "scaler_overhead_davs",
        "tadam_over_passes", "eval_speedup", "eval_over_embed",
        "head_speedup_dsvs", "head_memory_dsvs", "head_over_plain",
        "sampler_one_over_numpy", "sampler_batch_over_numpy",
        "tasks_per_s", "episodes_per_s", "ddp_2_over_1",
        "embed_bf16", "train_bf16_over_floor_84", "train_bf16_over_floor_32",
        "train_bf16_over_floor_28",
    }  # fmt: skip
    assert ratios["ddp_2_over_1"].value == 2.0
    assert ratios["ddp_2_over_1"].met
    assert not ratios["train_over_floor_84"].met


def test_a_cpu_without_bfloat16_is_not_asked_for_it(untimed, monkeypatch):
    for module in (steps, bench.evaluations):
        monkeypatch.setattr(module, "has_bfloat16", lambda: False)
    ratios = bench.run(repeats=1, parts=["train_over_floor", "embedding"])
    assert {r.key for r in ratios} == {f"train_over_floor_{size}" for size in (84, 32, 28)}


def test_a_whole_step_learns(tmp_path):
    dataset = noise_dataset(tmp_path, (28, 28, 1), classes=6, per_class=8)
    task = {"n_way": 3, "n_shot": 1, "n_query": 2}
    with steps.whole_step(tmp_path, dataset, scaler="svs", **task) as step:
        step()
        step()
    path = next(tmp_path.glob("*/metrics.jsonl"))
    assert len(path.read_text().splitlines()) == 2


def test_the_plain_backbone_computes_what_ours_does():
    torch.manual_seed(0)
    ours = Conv4(image_size=16, bn_init="ones").double()
    theirs = plain.plain_conv4(3).double()
    weights = [p.detach() for c, n in zip(ours.convs, ours.norms, strict=True)
               for p in (c.weight, c.bias, n.weight, n.bias)]  # fmt: skip
    for p, w in zip(theirs.parameters(), weights, strict=True):
        p.data.copy_(w)
    x = torch.rand(5, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-10, rtol=0)


def test_the_other_process_answers_with_seconds():
    with plain.Plain() as process:
        assert process("eval 1") > 0


def test_the_usual_evaluation_runs():
    plain.usual_evaluation(1)()


def test_numpys_episodes_repeat_nothing():
    rng = np.random.default_rng(0)
    rows = samplers.choose_many(rng, 50)
    assert rows.shape == (50, 80)
    assert all(len(set(task)) == 80 for task in rows.tolist())
    classes = rows.reshape(50, 5, 16) // 600
    assert (classes == classes[..., :1]).all()
    assert [len(set(items.tolist())) for items in samplers.choose(rng)] == [16] * 5


def test_turns_are_taken_and_the_first_do_not_count():
    order = []
    measured = timing.turns(lambda: order.append("a"), lambda: 7.0, repeats=3, warm_up=1)
    assert order == ["a"] * 4
    assert measured[1] == [7.0] * 3
    assert timing.ratio_of(lambda: 6.0, lambda: 2.0, repeats=2) == 3.0


def test_wrong_parts_are_refused():
    with pytest.raises(ValueError, match="Unknown part 'head'"):
        bench.run(parts=["head"])
