"""The grid: every cell has a place and a config, and configs kept by hand are those of the grid."""

import pytest

from varscale.cli.main import main
from varscale.cli.parser import ACTIONS
from varscale.cli.train import with_bases
from varscale.paper.grid import (
    cell,
    cell_at,
    cells,
    config_of,
    config_text,
    entries,
    read_grid,
    values_of,
)
from varscale.paper.sizes import resize
from varscale.runs.config_files import read_config, shipped_configs


def test_tables_have_their_cells():
    assert [len(cells(entries(f"table{n}"))) for n in (2, 3, 6)] == [16, 24, 16]
    assert len(entries("table4", column="1-shot cosine")) == 4
    (best,) = entries("baselines", row="fixed scale, chosen in validation", column="1-shot cosine")
    assert best.cells[:2] == ("pn_cosine_5w1s", "fixed3_cosine_5w1s")
    assert len(best.cells) == 5
    (svs,) = entries("table2", row="PN + SVS", column="1-shot cosine")
    assert (svs.cells, svs.accuracy, svs.interval) == (("svs_learned_cosine_5w1s",), 48.43, 0.2)
    (maml,) = entries("table1", row="Conv-4: MAML", column="1-shot")
    assert (maml.cells, maml.accuracy) == ((), 48.7)


def test_what_the_grid_lacks_is_refused():
    with pytest.raises(ValueError, match="Unknown table or figure 'table7'"):
        entries("table7")
    with pytest.raises(ValueError, match="Unknown column of table4 '1 shot'"):
        entries("table4", column="1 shot")
    with pytest.raises(ValueError, match="Unknown cell 'svs_manhattan_5w1s'.*Did you mean"):
        cell("svs", "manhattan", shot=1)
    with pytest.raises(ValueError, match=r"Expected one cell .* of table1, got \[\]"):
        cell_at("table1", "Conv-4: MAML", "1-shot")
    with pytest.raises(ValueError, match="Expected one cell .*fixed10_cosine_5w1s"):
        cell_at("baselines", "fixed scale, chosen in validation", "1-shot cosine")


def test_cells_are_found_by_method_and_by_place():
    assert cell("svs", "cosine", way=20, shot=5) == "svs_cosine_20w5s"
    assert cell_at("table6", "prior mean 1", "start 100") == "svs_euclidean_5w5s"
    assert cell_at("fig3", "fig3b, start 100", "rate 1.0e-4").startswith("svs_init100_lr1.0e-4")


def test_every_cell_has_a_config_at_every_size():
    for name in cells(entries()):
        config = config_of(name)
        small = resize(config, "small")
        assert small.steps == (1500 if "omniglot" in name else 3000)
        assert small.dataset in ("miniimagenet32", "omniglot-rotated")
        assert resize(config, "paper").steps == config.steps
        shots = name.rpartition("_")[2]
        assert shots == f"{config.n_way}w{config.n_shot}s"
        assert (config.metric == "cosine") == ("cosine" in name)


def test_an_unknown_cell_says_where_they_are_listed():
    with pytest.raises(ValueError, match="Unknown cell 'svs'.* --plan lists those of a table"):
        values_of("svs")


def test_values_of_a_few_cells():
    elbo = config_of("svs_elbo_init10_euclidean_5w5s")
    assert elbo.scaler_options == {"kl_weight": "elbo", "effective_tasks": 20000, "init": 10.0}
    assert (elbo.steps, elbo.lr_every, elbo.n_query) == (20_000, 2000, 15)
    tadam = config_of("tadam_fixed10_5w5s")
    assert (tadam.host, tadam.cotraining, tadam.metric) == ("tadam", True, "euclidean")
    assert tadam.lr_milestones == [15_000, 17_500, 20_000]
    assert tadam.scaler_options == {"alpha": 10.0}
    assert config_of("davs_bare_cosine_5w1s").objective_options == {"aux_epochs": None}
    config_of("svs_nokl_cosine_5w1s").scaler_options["kl_weight"] = 9.0  # a copy
    assert config_of("svs_nokl_cosine_5w1s").scaler_options == {"kl_weight": 0.0}


def test_every_cell_can_be_printed_and_trained_from(tmp_path, capsys):
    for name in read_grid()[1]:
        text = config_text(name)
        (tmp_path / f"{name}.yaml").write_text(text)
        assert read_config(tmp_path / f"{name}.yaml") == config_of(name)
        assert f"varscale train --config {name}.yaml" in text
    file = tmp_path / "tadam_5w5s.yaml"
    assert main(["reproduce", "--print-config", "tadam_5w5s"]) == 0
    assert capsys.readouterr().out == file.read_text()
    assert "# Table 1, ResNet-12: TADAM, 5-shot: published 76.70 ± 0.30 %." in file.read_text()
    args = ACTIONS["train"][0]().parse_args(with_bases(["--config", str(file)]))
    assert (args.lr_milestones, args.scaler_options) == ([15000, 17500, 20000], {"alpha": 7.5})


def test_configs_kept_by_hand_are_those_of_the_grid():
    files = [p for p in shipped_configs().glob("*/*.yaml") if p.parent.name != "glyphs"]
    assert len(files) >= 3
    for file in files:
        prefix = "" if file.parent.name == "miniimagenet" else f"{file.parent.name}_"
        assert read_config(file) == config_of(prefix + file.stem)


HEAD = "table,row,column,cell,overrides,accuracy,interval\n"


def test_a_cell_builds_on_another(tmp_path):
    file = tmp_path / "grid.csv"
    file.write_text(
        HEAD + ",,,a,dataset=x scaler_options.init=1.0 scaler_options.lr=1.0e-3,,\n"
        "t,r,c,b,a n_shot=5 scaler_options.init=2.0,50.5,\n"
        "t,r,c,a,,,\n"
    )
    (entry,), values = read_grid(file)
    assert (entry.cells, entry.accuracy, entry.interval) == (("b", "a"), 50.5, None)
    assert values["b"] == {"dataset": "x", "n_shot": 5, "scaler_options": {"init": 2.0}}
    for line in ("t,r,c,a,dataset=y,,", "t,r,c,z,,,", "t,r,c,,dataset=y,,"):
        wrong = tmp_path / f"{len(line)}.csv"
        wrong.write_text(HEAD + ",,,a,dataset=x,,\n" + line + "\n")
        with pytest.raises(ValueError, match="Expected the overrides of a cell once"):
            read_grid(wrong)
