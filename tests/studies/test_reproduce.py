"""The procedure behind `fedge reproduce`, on a recipe small enough to run here."""

import csv
import json

import pytest
from typer.testing import CliRunner

from fedge.algorithms.hiersfl import client_stages
from fedge.cli import app
from fedge.data import DATASETS
from fedge.errors import ConfigError
from fedge.experiment.build import make_model
from fedge.experiment.config import Config
from fedge.experiment.files import read_toml
from fedge.studies.reproduce import VARIANTS, figures_of, recipes, series_keys

RECIPE = """
seeds = 2
tuning_seeds = [9, 10]
[base]
clients = 10
cells = 2
partition = "one_class"
train_eval = true
[sets.mini]
data = "fashion-mini"
model = "mlp"
lr = 0.001
[figures.fig1]
caption = "a small figure"
set = "mini"
x = "simulated_seconds"
y = "global_loss"
points = 2
tune = [0.05]
keys = {local_steps = 2, edge_rounds = 1, rounds = 4}
series = [{label = "one", algorithm = "sdfeel"}, {label = "two", algorithm = "fedavg"}]
"""


@pytest.fixture
def papers(tmp_path, monkeypatch):
    (tmp_path / "papers/small").mkdir(parents=True)
    (tmp_path / "papers/small/recipes.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "papers/small/results"


def test_a_figure_from_recipe_to_files(papers):
    done = CliRunner().invoke(app, ["reproduce", "small/fig1"])
    assert done.exit_code == 0, done.stderr
    assert {p.name for p in papers.iterdir()} == {"fig1.csv", "fig1.json", "fig1.png", "fig1.pdf"}
    rows = list(csv.DictReader((papers / "fig1.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 2  # variants × series × points
    assert {(r["variant"], r["lr"]) for r in rows} == {("printed", "0.001"), ("tuned", "0.05")}
    series = json.loads((papers / "fig1.json").read_text())["series"]
    assert [s["iteration"] for s in series] == [8] * 4
    assert series[2]["global_loss"] < series[0]["global_loss"]
    assert "tuned to 0.05" in done.stderr
    again = CliRunner().invoke(app, ["reproduce", "small", "--draw", "only"])
    assert again.exit_code == 0


def test_unknown_targets(papers):
    with pytest.raises(ConfigError, match=r"unknown paper 'smal'.*did you mean 'small'"):
        recipes("smal")
    with pytest.raises(ConfigError, match=r"unknown figure of small 'fig2'.*did you mean 'fig1'"):
        figures_of("small/fig2")


@pytest.mark.parametrize("paper", ["sdfeel", "hist", "hiersfl"])
def test_recipes_in_the_repository_are_valid(paper):
    """Every series of every figure is a configuration that can be."""
    recipe, home = recipes(paper)
    assert read_toml(home / "recipes.toml") == recipe
    for figure in recipe["figures"].values():
        for series in figure["series"]:
            for variant in recipe.get("variants", VARIANTS).values():
                config = Config.of(series_keys(recipe, figure, series, variant)[1])
                if config.cut is not None:
                    client_stages(make_model(config, DATASETS[config.data].shape, 10), config.cut)
