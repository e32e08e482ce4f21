"""The procedure behind `fedge reproduce` is run on a recipe small enough to run here."""

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
from fedge.studies import kept, tables
from fedge.studies import reproduce as procedure
from fedge.studies.curve import Curve, names_of, read_curves, read_summary
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
claims = [{says = "one is better", pairs = [["one", "two"]], at = [3.0]}]
[figures.fig2]
caption = "the same runs"
runs_of = "fig1"
x = "cells"
y = "load"
target = 0.3
"""
README = "# Small\n\n<!-- fig1 -->\n<!-- end of fig1 -->\n\nThe end.\n"


@pytest.fixture
def results(tmp_path, monkeypatch):
    (tmp_path / "small").mkdir()
    (tmp_path / "small/recipes.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "small/results"


def test_a_figure_from_recipe_to_files(results):
    readme = results.parent / "README.md"
    readme.write_text(README)
    done = CliRunner().invoke(app, ["reproduce", "./small/fig1"])
    assert done.exit_code == 0, done.stderr
    assert {p.name for p in results.iterdir()} == {f"fig1.{kind}" for kind in ("csv", "json", "md", "png", "pdf")}
    rows = list(csv.DictReader((results / "fig1.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 2 * 2  # variants × series × seeds × points
    assert {(r["variant"], r["lr"]) for r in rows} == {("printed", "0.001"), ("tuned", "0.05")}
    assert {(r["seed"], r["iteration"]) for r in rows} == {(s, k) for s in "01" for k in "48"}
    series = json.loads((results / "fig1.json").read_text())["series"]
    assert [s["seeds"] for s in series] == [[0, 1]] * 4
    tried = series[2]["tuning_losses"]
    assert {lr: sorted(losses) for lr, losses in tried.items()} == {"0.001": ["10", "9"], "0.05": ["10", "9"]}
    curves = read_curves(results / "fig1.csv")
    assert curves[2].columns["global_loss"].max() < curves[0].columns["global_loss"].min()
    assert all(0 < c.columns["objective"][0, -1] < 3 for c in curves)
    # Of 10 clients each sends a model in each of 4 edge rounds, 5 of them to each edge; FedAvg's send to the cloud.
    loads = {c.label: [c.columns[x][0, -1] for x in ("client_load", "edge_load", "cloud_load")] for c in curves}
    assert loads == {"one": [4, 20, 0], "two": [4, 0, 40]}
    assert "tuned to 0.05" in done.stderr
    assert "one is better" in done.stdout
    text = (results / "fig1.md").read_text().rstrip()
    assert readme.read_text() == README.replace("fig1 -->\n<!-- end", f"fig1 -->\n{text}\n<!-- end")
    again = CliRunner().invoke(app, ["reproduce", "./small", "--draw", "only"])
    assert again.exit_code == 0
    assert (results / "fig2.md").exists()
    assert "fig2.csv" not in {p.name for p in results.iterdir()}


def test_nothing_is_drawn_of_runs_that_were_not_made(results):
    done = CliRunner().invoke(app, ["reproduce", "./small", "--draw", "only"])
    assert done.exit_code == 4
    assert "fig2: no runs of fig1 are in" in done.stderr
    assert "nothing of ./small has been run yet" in done.stderr


# Which recipe is meant


def test_unknown_targets(results):
    with pytest.raises(ConfigError, match=r"unknown paper 'hst'.*did you mean 'hist'.*of your own is ./FOLDER"):
        recipe_of("hst")
    with pytest.raises(ConfigError, match=r"unknown figure of small 'gif1'.*did you mean 'fig1'"):
        figures_of("./small/gif1")
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
    """Reading checks every run of every figure; its cuts are stages of its model."""
    recipe, _, _ = recipe_of(paper)
    for figure in recipe.figures.values():
        for series in figure.series:
            config = Config.of(recipe.run_keys(figure, series, next(iter(recipe.variants.values()))))
            if config.declared.get("cut") is not None:
                client_stages(make_model(config, DATASETS[config.data].shape, 10), config.declared["cut"])


WITHOUT_RUNS = {  # made on an accelerator before each seed's curve was kept: means in results/means
    "sdfeel": {"fig3b", "fig3b_tuned"},
    "hist": set(),
    "hiersfl": {f"{runs}_{x}" for runs in ("cifar52", "cifar102") for x in ("iterations", "time", "bytes")},
}  # fmt: skip
VARIANTS_WITHOUT_RUNS = {"hiersfl": {"tuned"}}  # for the same reason


@pytest.mark.parametrize("paper", ["sdfeel", "hist", "hiersfl"])
def test_tables_and_verdicts_in_the_repository_are_those_of_the_stored_runs(paper):
    """Every word and number between a README's marks is made from the curves again, and equal."""
    readme = (OWN / paper / "README.md").read_text()
    without = set()
    for place in figures_of(paper):
        if not place.table.exists():
            without.add(place.name)
            assert f"<!-- {place.name} -->" not in readme
            continue
        curves, recipe = place.curves(), place.recipe
        shown = set(recipe.variants_of(place.figure)) - VARIANTS_WITHOUT_RUNS.get(paper, set())
        wanted = {(v, s.label, recipe.run_keys(place.figure, s, recipe.variants[v]).get("cells"))
                  for v in shown for s in place.figure.series}  # fmt: skip
        assert {(c.variant, c.label, c.cells) for c in curves} == wanted
        made = read_summary(place.table.with_suffix(".json"))
        assert {s["variant"]: s["seeds"] for s in made["series"]} == {
            c.variant: c.seeds for c in read_curves(place.table)
        }
        full = tables.text_of(recipe, place.figure, curves)
        assert (place.folder / f"{place.name}.md").read_text() == full + "\n"
        assert tables.text_in(readme, place.name) == tables.text_of(recipe, place.figure, curves, short=True)
    assert without == WITHOUT_RUNS[paper]


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
        ("points = 2\n", "", "figure fig1: points is missing"),
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
        ('runs_of = "fig1"', 'runs_of = "fig3"', "figure fig2: unknown figure 'fig3'; allowed: fig1, fig2"),
        ('runs_of = "fig1"', 'runs_of = "fig2"', "figure fig2: fig2 shows the runs of fig2 itself"),
        ('runs_of = "fig1"', 'runs_of = "fig1"\npoints = 3', "fig2: points is that of the figure whose runs it shows"),
        ('[["one", "two"]]', '[["one", "tow"]]', "fig1: claim 'one is better': unknown series 'tow'.*mean 'two'"),
        ('[["one", "two"]]', '[["one"]]', "figure fig1: claims.0.pairs.0.1 is missing"),
        ("at = [3.0]", "paper = 0.5", "figure fig1: a claim has pairs, with within or not, or series with paper"),
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
    rows = [{"accuracy": a, "client_load": load, "round": 1} for a, load in ((0.2, 1.0), (0.6, 2.0), (0.8, 3.0))]
    three, four = (Curve.of("printed", "HIST", cells, 0.1, {0: rows, 5: rows}, {}) for cells in (3, 4))
    assert names_of([three, four]) == ["HIST, N = 3", "HIST, N = 4"]
    assert names_of([three]) == ["HIST"]
    assert three.load_to(0.5).tolist() == [2, 2]
    assert three.load_to(0.65, smooth=2).tolist() == [3, 3]


# Files


RUNS = 16  # of fig1: two series with two seeds, as printed and tuned, and two rates on two tuning seeds


@pytest.fixture
def made():
    """Hold the runs that were made so far."""
    return []


@pytest.fixture
def stubbed(results, monkeypatch, made):
    """Make runs that cost nothing, and fix what machines differ in; return a function that reproduces ./small."""

    def histories(configs, dataset, cache):
        for place, c in enumerate(configs):
            made.append((c.algorithm, c.lr, c.seed, c.eval_every))
            yield place, [
                {"round": r, "iteration": 2 * r, "simulated_seconds": 0.5 * r, "bytes": {"client_to_edge": 10**6 * r},
                 "accuracy": 0.1 * r + 0.01 * c.seed, "loss": 1.0, "global_loss": 1 / (r + c.lr)}
                for r in (2, 4)
            ]  # fmt: skip

    monkeypatch.setattr(procedure, "histories", histories)
    monkeypatch.setattr(procedure, "environment", lambda seed: {"seed": seed, "versions": {}})
    monkeypatch.setattr(kept.time, "perf_counter", lambda: 0.0)
    return lambda variant=None: list(reproduce("./small", None, None, variant, lambda line: None))


class Killed(BaseException):
    """The process is gone: nothing of fedge's may catch it."""


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def test_a_reproduction_killed_at_any_file_operation_ends_with_the_same_files(results, stubbed, made, monkeypatch):
    """And no run is made again but the one that was being written down."""
    stubbed()
    whole = contents(results)
    assert sorted(whole) == ["fig1.csv", "fig1.json"]
    assert len(made) == len(set(made)) == RUNS
    operations = {name: getattr(os, name) for name in ("mkdir", "unlink", "open", "write", "fsync", "replace")}
    for last in range(100):
        for path in results.iterdir():
            path.unlink()
        results.rmdir()
        made.clear()
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
        assert RUNS <= len(made) <= RUNS + 1
    assert last > 2 * RUNS + 15


def die(*_):
    raise Killed


@pytest.mark.parametrize("before", ["fedge.studies.kept.KeptRuns.remove", "fedge.studies.reproduce.write_curves"])
def test_runs_of_a_stopped_reproduction_are_taken_from_the_same_program_only(
    results, stubbed, made, monkeypatch, before
):
    """Stopped when all is written but nothing forgotten, or when the runs are there and no curve is written."""
    with monkeypatch.context() as patch:
        patch.setattr(before, die)
        with pytest.raises(Killed):
            stubbed()
    path = results / "fig1.runs.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == RUNS

    def made_again():
        made.clear()
        stubbed()
        assert not path.exists()
        return len(made)

    path.write_bytes(b"".join(lines))
    assert made_again() == 0
    path.write_bytes(b"".join(lines)[:-5])  # cut short
    assert made_again() == 1
    path.write_bytes(b"".join(lines).replace(b'"global_loss": ', b'"global_loss": 1', 1))  # a number changed
    assert made_again() == 1
    path.write_bytes(b"\xff[\n" + b"[" * 10**5 + b"\n{}\n3\n" + lines[0])
    assert made_again() == RUNS - 1
    path.write_bytes(b"".join(lines))
    monkeypatch.setattr(procedure, "environment", lambda seed: {"seed": seed, "versions": {"jax": "9"}})
    assert made_again() == RUNS


def test_variants_keep_their_order_whichever_is_made_again(results, stubbed):
    def made():
        """Return the curves, and of the summary what does not say which variants were made by one command."""
        summary = json.loads((results / "fig1.json").read_text())
        return (results / "fig1.csv").read_bytes(), summary["series"], list(summary["runs"])

    stubbed()
    whole = made()
    stubbed("printed")
    assert made() == whole
    for path in results.iterdir():
        path.unlink()
    stubbed("tuned")
    stubbed("printed")
    assert made() == whole


def test_results_never_leave_their_folder(results, stubbed, tmp_path):
    """A folder from somebody else may hold links; nothing is written or read through one."""
    secret = tmp_path / "secret"
    secret.write_text("mine")
    results.mkdir()
    for name in ("fig1.csv.part", "fig1.json.part"):
        (results / name).symlink_to(secret)
    stubbed()
    assert secret.read_text() == "mine"
    (results / "fig1.runs.jsonl").symlink_to(secret)
    with pytest.raises(RunError, match=r"fig1\.runs\.jsonl is not an ordinary file; move it away"):
        stubbed()
    (results / "fig1.runs.jsonl").unlink()
    for name in ("fig1.csv", "fig1.json"):
        whole = (results / name).read_bytes()
        (results / name).unlink()
        (results / name).symlink_to(secret)
        with pytest.raises(RunError, match=f"{name} is not an ordinary file; move it away"):
            stubbed()
        (results / name).unlink()
        (results / name).write_bytes(whole)
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
