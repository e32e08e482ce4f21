"""The procedure behind `fedge reproduce`, on a recipe small enough to run here."""

import csv
import json
import os

import pytest
from typer.testing import CliRunner

from fedge.algorithms.hiersfl import client_stages
from fedge.cli import app
from fedge.data import DATASETS
from fedge.errors import ConfigError, FedgeError, RunError
from fedge.experiment.build import make_model
from fedge.experiment.config import Config
from fedge.studies import reproduce as procedure
from fedge.studies.curve import Curve, lines_of_targets, read_lines
from fedge.studies.recipe import read_recipe
from fedge.studies.reproduce import OWN, figures_of, recipe_of, reproduce

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
def results(tmp_path, monkeypatch):
    (tmp_path / "small").mkdir()
    (tmp_path / "small/recipes.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "small/results"


def test_a_figure_from_recipe_to_files(results):
    done = CliRunner().invoke(app, ["reproduce", "./small/fig1"])
    assert done.exit_code == 0, done.stderr
    assert {p.name for p in results.iterdir()} == {"fig1.csv", "fig1.json", "fig1.png", "fig1.pdf"}
    rows = list(csv.DictReader((results / "fig1.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 2  # variants × series × points
    assert {(r["variant"], r["lr"]) for r in rows} == {("printed", "0.001"), ("tuned", "0.05")}
    series = json.loads((results / "fig1.json").read_text())["series"]
    assert [s["iteration"] for s in series] == [8] * 4
    assert series[2]["global_loss"] < series[0]["global_loss"]
    assert [s["objective_each"] for s in series] == [pytest.approx(s["global_loss_each"], rel=1e-6) for s in series]
    assert "objective_std" in rows[0]
    assert "tuned to 0.05" in done.stderr
    again = CliRunner().invoke(app, ["reproduce", "./small", "--draw", "only"])
    assert again.exit_code == 0


# Which recipe is meant


def test_unknown_targets(results):
    with pytest.raises(ConfigError, match=r"unknown paper 'hst'.*did you mean 'hist'.*of your own is ./FOLDER"):
        recipe_of("hst")
    with pytest.raises(ConfigError, match=r"unknown figure of small 'fig2'.*did you mean 'fig1'"):
        figures_of("./small/fig2")
    for path in ("./nowhere", "/proc/nowhere", "./small/results/fig1", ".."):
        with pytest.raises(ConfigError, match="is no folder with a recipes"):
            recipe_of(path)


def test_a_recipe_here_never_takes_the_place_of_fedges_own(results, monkeypatch):
    """Somebody unpacks a folder with papers/hist in it and asks for hist: the recipe is still fedge's."""
    (results.parents[1] / "papers").mkdir()
    (results.parents[1] / "small").rename("papers/hist")
    assert recipe_of("hist/fig2a")[1] == OWN / "hist"
    recipe, home, wanted = recipe_of("./papers/hist/fig1")
    assert (recipe.figures["fig1"].caption, str(home), wanted) == ("a small figure", "papers/hist", "fig1")
    monkeypatch.chdir("papers")
    assert recipe_of("../papers/hist")[2] == "*"
    with pytest.raises(ConfigError, match="unknown paper"):
        recipe_of("sdfeel\x00/..")


@pytest.mark.parametrize("paper", ["sdfeel", "hist", "hiersfl"])
def test_recipes_in_the_repository_are_valid(paper):
    """Reading checks every run of every figure; its cuts are stages of its model; its tables have its series."""
    recipe, home, _ = recipe_of(paper)
    for name, figure in recipe.figures.items():
        names = {(s.label, str(s.keys["cells"]) if figure.target else None) for s in figure.series}
        lines = read_lines(home / f"results/{name}.csv", ("variant", "series"))
        assert {(line["series"], line.get("cells")) for line in lines} == names
        assert {line["variant"] for line in lines} == set(recipe.variants_of(figure))
        for series in figure.series:
            config = Config.of(recipe.run_keys(figure, series, next(iter(recipe.variants.values()))))
            if config.cut is not None:
                client_stages(make_model(config, DATASETS[config.data].shape, 10), config.cut)


# What a recipe may say


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("seeds = 2\n", "", ": seeds is missing"),
        ("seeds = 2\n", "seeds = 0\n", "seeds=0 is not allowed: input should be greater than or equal to 1"),
        ("seeds = 2\n", "seeds = 1_000_000_000_000\n", "seeds=1000000000000 is not allowed: input should be less than"),
        ("tune = [0.05]", "tune = [0.05, -1]", "figure fig1: tune.1=-1 is not allowed: input should be greater than 0"),
        ("seeds = 2\n", "seeds = '2'\n", "seeds=2 is not allowed: input should be a valid integer"),
        ("seeds = 2\n", "seeds = 2\nsedes = 3\n", "unknown key 'sedes'; did you mean 'seeds'"),
        ("points = 2", "pionts = 2", "figure fig1: points is missing"),
        ("points = 2", "points = 2\npionts = 2", "figure fig1: unknown key 'pionts'; did you mean 'points'"),
        ('x = "simulated_seconds"', 'x = "seconds"', "figure fig1: x=seconds is not allowed: input should be 'iter"),
        (
            "local_steps = 2",
            "local_stpes = 2",
            "figure fig1: unknown key 'local_stpes' of a run; did you mean",
        ),
        ('label = "one", ', "", "figure fig1: series 1: label is missing"),
        ('"sdfeel"}', '"sdfeel", cel = 3}', "figure fig1: series 1: unknown key 'cel' of a run; did you mean 'cells'"),
        ('"fedavg"', '"fedvag"', "figure fig1: series 'two': unknown algorithm 'fedvag'.*did you mean 'fedavg'"),
        ('"fedavg"', "3", "figure fig1: series 'two': algorithm=3 is not allowed"),
        ("cells = 2", "cells = 20", "figure fig1: series 'one': cells=20 is more than clients=10"),
        ('label = "two"', 'label = "one"', "figure fig1: two series are called 'one'"),
        ('set = "mini"', 'set = "maxi"', "figure fig1: unknown set 'maxi'; allowed: mini; did you mean 'mini'"),
        ("data =", "seed = 1\ndata =", "set mini: seed is not for a recipe: it follows from seeds"),
        ('data = "fashion-mini"\n', "", "set mini: data is missing; give one of: "),
        ("rounds = 4", 'rounds = 4, data = "mnist"', "figure fig1: data is the set's own key"),
        ("train_eval = true", "", "figure fig1: series 'one': the training loss is needed; give train_eval = true"),
        ("tune = [0.05]", "", "figure fig1: variant tuned tunes the rate; give tune and tuning_seeds"),
        ("tune = [0.05]", 'tune = [0.05]\nvariants = ["prined"]', "unknown variant 'prined'.*did you mean 'printed'"),
        ("points = 2", "points = 2\ntarget = 0.5", "figure fig1: target, x=cells and y=load belong together"),
        ("[base]", "[variants.a]\ntuned = true\n[base]", "variant a: unknown key 'tuned'; did you mean 'tune'"),
        ("[base]", "figures = 3\n[base]", "is not valid TOML"),
        ("[sets.mini]", "[[sets]]", "sets=.* is not allowed: input should be a valid dictionary"),
        ("[figures.fig1]", '[figures."../fig1"]', "figure ../fig1: a name has letters, digits"),
        ("[figures.fig1]", '[figures."/tmp/fig1"]', "figure /tmp/fig1: a name has letters, digits"),
        ("[figures.fig1]", '[figures.""]', "figure : a name has letters, digits"),
        ("[figures.fig1]", '[figures.".fig1"]', "figure .fig1: a name has letters, digits"),
    ],
)
def test_a_wrong_recipe_gets_one_sentence(results, old, new, sentence):
    path = results.parent / "recipes.toml"
    assert old in RECIPE
    path.write_text(RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=f"^small/recipes.toml.*{sentence}"):
        recipe_of("./small")


def test_a_name_that_is_not_printable_stays_on_one_line(results):
    (results.parent / "recipes.toml").write_text(RECIPE.replace("[figures.fig1]", '[figures."a\\nb"]'))
    with pytest.raises(ConfigError, match=r"^small/recipes.toml: figure 'a\\nb': a name has letters"):
        recipe_of("./small")


# N is a column


def test_cells_come_from_the_runs_and_not_from_the_label():
    rows = [{"accuracy": a, "client_load": load} for a, load in ((0.2, 1.0), (0.6, 2.0), (0.8, 3.0))]
    curve = Curve("printed", "HIST, N = 7", 0.1, 3, [rows, rows])
    (line,) = lines_of_targets([curve], 0.5)
    assert (line["series"], line["cells"], line["load"], line["load_reached"]) == ("HIST, N = 7", 3, "2", 2)


# Files


@pytest.fixture
def stubbed(results, monkeypatch):
    """Runs that cost nothing, and what of a machine would differ; the result is a function that reproduces ./small."""

    def histories(configs, dataset, workshop):
        for place, c in enumerate(configs):
            yield place, [
                {"round": r, "iteration": 2 * r, "simulated_seconds": 0.5 * r, "bytes": {"client_to_edge": 10**6 * r},
                 "accuracy": 0.1 * r + 0.01 * c.seed, "loss": 1.0, "global_loss": 1 / (r + c.lr)}
                for r in (2, 4)
            ]  # fmt: skip

    monkeypatch.setattr(procedure, "histories", histories)
    monkeypatch.setattr(procedure, "environment", lambda seed: {"seed": seed, "versions": {}})
    monkeypatch.setattr(procedure.time, "perf_counter", lambda: 0.0)
    return lambda variant=None: list(reproduce("./small", None, None, variant, lambda line: None))


class Killed(BaseException):
    """The process is gone: nothing of fedge's may catch it."""


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def test_a_reproduction_killed_at_any_file_operation_ends_with_the_same_files(results, stubbed, monkeypatch):
    stubbed()
    whole = contents(results)
    assert sorted(whole) == ["fig1.csv", "fig1.json"]
    operations = {name: getattr(os, name) for name in ("mkdir", "unlink", "open", "write", "fsync", "replace")}
    for last in range(100):
        for path in results.iterdir():
            path.unlink()
        results.rmdir()
        left = last

        def dying(operation):
            def call(*args, **kwargs):
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return operation(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for name, operation in operations.items():
                patch.setattr(os, name, dying(operation))
            try:
                stubbed()
                break
            except Killed:
                pass
        for path in results.glob("fig1.[cj]s*"):
            assert path.name.endswith(".part") or path.read_bytes().endswith(b"\n")  # whole, if there at all
        stubbed()
        assert contents(results) == whole, f"killed before operation {last}"
    assert last > 15


def test_variants_keep_their_order_whichever_is_made_again(results, stubbed):
    stubbed()
    whole = contents(results)
    stubbed("printed")
    assert contents(results) == whole
    for path in results.iterdir():
        path.unlink()
    stubbed("tuned")
    stubbed("printed")
    assert contents(results) == whole


def test_results_never_leave_their_folder(results, stubbed, tmp_path):
    """A folder from somebody else may hold links; nothing is written or read through one."""
    secret = tmp_path / "secret"
    secret.write_text("mine")
    results.mkdir()
    for name in ("fig1.csv.part", "fig1.json.part"):
        (results / name).symlink_to(secret)
    stubbed()
    assert secret.read_text() == "mine"
    for name in ("fig1.csv", "fig1.json"):
        kept = (results / name).read_bytes()
        (results / name).unlink()
        (results / name).symlink_to(secret)
        with pytest.raises(RunError, match=f"{name} is not an ordinary file; move it away"):
            stubbed()
        (results / name).unlink()
        (results / name).write_bytes(kept)
    assert secret.read_text() == "mine"
    results.rename(tmp_path / "elsewhere")
    results.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="results is a link, which may lead anywhere"):
        stubbed()


@pytest.mark.parametrize(
    "damage",
    [b"", b"\xff\xfe", b"[]", b"null", b'{"runs": 3, "series": []}', b'{"runs": {}, "series": [1]}', b"[" * 10**5],
)
def test_a_damaged_summary_gets_one_sentence(results, stubbed, damage):
    stubbed()
    (results / "fig1.json").write_bytes(damage)
    with pytest.raises(FedgeError, match=r"fig1\.json is not a summary of this figure; move it away"):
        stubbed()


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"a,b\n1,2\n", b"variant,a\nprinted,1,2\n", b"variant,a\n\0,1,\n"])
def test_a_damaged_table_gets_one_sentence(results, stubbed, damage):
    stubbed()
    (results / "fig1.csv").write_bytes(damage)
    with pytest.raises(FedgeError, match=r"fig1\.csv is not a table of this figure.*; move it away"):
        stubbed()


def test_recipes_are_frozen():
    figure = read_recipe(OWN / "hist/recipes.toml").figures["fig2a"]
    with pytest.raises(ValueError, match="frozen"):
        figure.points = 3
