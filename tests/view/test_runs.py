"""Runs that are there are listed, laid over one another and handed on, whatever state they are in."""

import csv
import io
import json
import os
import sys
from types import ModuleType

import pytest
from typer.testing import CliRunner

import fedge
from fedge.cli import app
from fedge.errors import RunError
from fedge.experiment.config import Config
from fedge.runner import files
from fedge.studies.interval import Interval
from fedge.studies.sweep_table import Line, csv_of
from fedge.view import overlay, run_list, selected
from fedge.view.trackers import numbers_of

KEYS = {"clients": 6, "cells": 3, "rounds": 3, "local_steps": 1, "edge_rounds": 2, "batch": 5}
LOSS = 0.25


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    fedge.run(KEYS, algorithm="hierfavg", out=folder)
    return folder


@pytest.fixture
def runs(one, tmp_path):
    """Two rates over three seeds, made from one run: the accuracy of each row tells which it is."""
    for lr in (0.1, 0.2):
        for seed in range(3):
            copied(one, tmp_path / "runs" / f"lr={lr}_seed={seed}", {"lr": lr, "seed": seed}, lr + 0.01 * seed)
    return tmp_path / "runs"


def copied(one, place, keys, accuracy=0.5, **changes):
    place.mkdir(parents=True)
    about = json.loads((one / "run.json").read_text())
    files.write_json(place / "run.json", about | {"config": about["config"] | keys} | changes)
    rows = [json.loads(line) for line in (one / "metrics.jsonl").read_text().splitlines()]
    lines = [files.line(row | {"accuracy": accuracy + 0.1 * row["round"], "loss": LOSS}) for row in rows]
    (place / "metrics.jsonl").write_text("".join(lines))
    return place


def call(*words, **env):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "120"} | env)


def test_a_list_says_what_sets_each_run_apart(one, runs):
    copied(one, runs / "lost", {"cells": 2}, state="running", begun="2001-02-03T04:05:06+00:00")
    (copied(one, runs / "broken", {}) / "run.json").write_text("[")
    with (runs / "lr=0.1_seed=1/metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "acc')  # cut short: the row before it is the last
    found = json.loads(call("list", runs, "--format", "json").stdout)
    lines = {line["name"]: line for line in found}
    assert len(lines) == 8
    assert lines["lr=0.2_seed=1"]["differs"] == {"lr": 0.2, "seed": 1, "cells": 3}
    assert lines["lr=0.1_seed=1"]["value"] == pytest.approx(0.1 + 0.01 + 0.3)
    assert (lines["lr=0.1_seed=1"]["metric"], lines["lr=0.1_seed=1"]["round"]) == ("accuracy", 3)
    assert lines["lost"]["state"] == "lost"
    assert [line["name"] for line in found][-2:] == ["lost", "broken"]  # the oldest, and one that has no date
    assert (lines["broken"]["state"], "is damaged" in lines["broken"]["problem"]) == ("damaged", True)
    table = {line["name"]: line for line in csv.DictReader(io.StringIO(call("list", runs, "--format", "csv").stdout))}
    assert (table["lr=0.2_seed=1"]["lr"], table["lr=0.2_seed=1"]["seed"]) == ("0.2", "1")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_list_stays_within_the_terminal(runs, width):
    said = call("list", runs, COLUMNS=str(width)).stdout.splitlines()
    assert max(map(len, said)) <= width
    assert sum("lr=0.2_seed=2" in line for line in said) == 1
    assert ("differs in" in said[0]) == (width >= 80)  # else a block for each run


def test_a_thousand_runs_are_listed_without_reading_their_rows(one, tmp_path, monkeypatch):
    """Of each run two files are opened; reading every row of every run would parse 300 times as many."""
    for n in range(30):
        copied(one, tmp_path / str(n), {"seed": n})
        (tmp_path / str(n) / "metrics.jsonl").write_text((tmp_path / str(n) / "metrics.jsonl").read_text() * 100)
    parsed = []
    monkeypatch.setattr(
        files, "parse_json", lambda text, place, parse=files.parse_json: parsed.append(1) or parse(text, place)
    )
    assert len(run_list.run_list(tmp_path)) == 30
    assert len(parsed) == 60


def test_runs_that_differ_in_their_seed_only_are_one_line_with_a_band(runs):
    axes = overlay.overlay(selected.select([runs]), "seconds").axes[0]
    assert [line.get_label() for line in axes.lines] == ["lr=0.1", "lr=0.2"]
    assert axes.lines[1].get_ydata() == pytest.approx([100 * (0.2 + 0.01 + 0.1 * n) for n in (1, 2, 3)])
    low, high = (f(path[:, 1]) for path in [axes.collections[0].get_paths()[0].vertices] for f in (min, max))
    # s = 0.01, t = 4.302653 of 2 degrees of freedom: ± 4.302653 × 1 %/√3 about 21 % and 41 %
    assert (low, high) == (pytest.approx(21 - 2.484138), pytest.approx(41 + 2.484138))
    assert axes.get_xlabel() == "simulated seconds"


def test_the_same_run_twice_is_no_band(one, runs, tmp_path):
    copied(one, tmp_path / "again", {"lr": 0.1, "seed": 0})
    page = selected.select([runs / "lr=0.1_seed=0", tmp_path / "again", runs / "lr=0.1_seed=0"])
    assert [name for name, *_ in selected.lines_of(page)] == ["runs/lr=0.1_seed=0", "again"]


def test_settings_of_one_algorithm_are_no_seeds_beside_another(one, tmp_path):
    """`submodels` is a key of hist alone; the last record was written before there was such a key: today's default."""
    for name, keys, accuracy in (
        ("flat", {"algorithm": "fedavg"}, 0.3), ("two", {"algorithm": "hist", "submodels": 2}, 0.1),
        ("four", {"algorithm": "hist", "submodels": 4, "seed": 1}, 0.5), ("old", {"algorithm": "hist", "seed": 2}, 0.1),
    ):  # fmt: skip
        copied(one, tmp_path / name, keys, accuracy)
    assert Config.of({"algorithm": "hist"}).submodels is None
    page = selected.select([tmp_path])
    assert page["differing"] == ["algorithm", "submodels", "seed"]
    names = {"fedavg", "hist submodels=2", "hist submodels=4", "hist submodels=None"}
    assert {group["name"]: group["columns"] for group in page["groups"]} == {name: {} for name in names}
    assert len(overlay.overlay(page).axes[0].collections) == 0  # no band
    lines = list(csv.DictReader(io.StringIO(call("export", tmp_path, "--to", "csv").stdout)))
    assert {(line["algorithm"], line["submodels"]) for line in lines} == {
        ("fedavg", ""), ("hist", "2"), ("hist", "4"), ("hist", ""),
    }  # fmt: skip
    table = call("export", tmp_path, "--to", "latex").stdout
    assert [row in table for row in ("fedavg &  & 1", "hist & 2 & 1", "hist & 4 & 1")] == [True] * 3, table
    listed = json.loads(call("list", tmp_path, "--format", "json").stdout)
    assert {line["name"]: line["differs"].get("submodels") for line in listed} == {
        "flat": None, "two": 2, "four": 4, "old": None,
    }  # fmt: skip


def test_bytes_have_a_unit(runs):
    page = selected.select([runs])
    axes = overlay.overlay(page, "bytes", "loss").axes[0]
    assert axes.get_xlabel() == "sent on all tiers (MB)"
    assert axes.lines[0].get_xdata()[-1] == pytest.approx(page["runs"][0]["columns"]["bytes"][-1] / 1e6)


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_a_figure_is_the_same_bytes_each_time(runs, kind, tmp_path):
    for name in "ab":
        done = call("plot", runs / "lr=0.1_seed=0", "--x", "iterations", "--out", tmp_path / f"{name}.{kind}")
        assert done.exit_code == 0, done.output
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_runs_that_cannot_share_an_axis(runs):
    page = selected.select([runs])
    page["runs"][2]["columns"]["simulated_seconds"] = [None, None, None]
    with pytest.raises(RunError, match=r"^lr=0.1_seed=2 has no seconds in its record, so that the runs cannot share an "
                                       r"axis; all of them have: rounds, iterations, bytes$"):  # fmt: skip
        overlay.overlay(page, "seconds")


def test_every_number_comes_out_as_csv(runs):
    lines = list(csv.DictReader(io.StringIO(call("export", runs, "--to", "csv").stdout)))
    assert len(lines) == 6 * 3
    last = next(line for line in lines if (line["lr"], line["seed"], line["round"]) == ("0.2", "1", "3"))
    row = json.loads((runs / "lr=0.2_seed=1/metrics.jsonl").read_text().splitlines()[-1])
    assert float(last["accuracy"]) == row["accuracy"]
    assert int(last["bytes"]) == sum(row["bytes"].values())
    assert int(last["bytes_client_to_edge"]) == row["bytes"]["client_to_edge"]


def test_text_is_no_formula_of_a_spreadsheet(one, tmp_path):
    """A number is one whatever its sign: here a metric below 0."""
    for data in ("=1+1", "@sum"):
        copied(one, tmp_path / data, {"data": data}, -0.85)
    exported, listed = call("export", tmp_path, "--to", "csv").stdout, call("list", tmp_path, "--format", "csv").stdout
    for text in (
        exported,
        listed,
        csv_of([Line({"data": "=1+1"}, 2, 0, "loss", {"loss": Interval(-0.5, -0.6, -0.4, 0.1)}, None)]),
    ):
        lines = list(csv.DictReader(io.StringIO(text)))
        assert lines[0]["data"] in ("'=1+1", "'@sum")
        assert not any(line.startswith(("=", "@")) for line in text.splitlines())
        assert float(next(lines[0][name] for name in ("accuracy", "value", "loss") if name in lines[0])) < 0


def test_a_table_for_latex_has_a_line_for_each_setting(runs, tmp_path):
    done = call("export", runs, "--to", "latex", "--out", tmp_path / "new/table.tex")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "new/table.tex").read_text()
    assert r"0.1 & 3 & 41.0 $\pm$ 2.5" in text
    assert text.count(r" \\") == 3


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["list", "nowhere"], 4, "nowhere does not hold a run"),
        (["plot", "nowhere"], 4, "nowhere does not hold a run"),
        (["plot", "{runs}", "--out", "x.jpg"], 2, "--out x.jpg is no picture"),
        (["plot", "{runs}", "--y", "perplexity"], 4, "has no perplexity in its record, so that the runs cannot"),
        (
            ["plot", "{runs}", "--x", "hours"],
            2,
            "--x hours is not allowed; allowed: rounds, iterations, seconds, bytes",
        ),
        (["export", "{runs}", "--to", "xlsx"], 2, "--to xlsx is not allowed; allowed: csv, latex, "),
        (["export", "{runs}"], 2, "--to is missing; give one of: csv, "),
        (["plot", "{runs}", "--out", "/proc/nowhere/x.svg"], 4, "choose another place"),
        (["plot", "{fresh}"], 4, "has no evaluated round yet"),
        (["export", "{runs}", "--to", "wandb"], 2, "wandb is not installed"),
    ],
)
def test_bad_input_gets_one_sentence(one, runs, tmp_path, monkeypatch, words, code, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    (copied(one, tmp_path / "fresh", {}) / "metrics.jsonl").unlink()
    done = call(*(word.format(runs=runs, fresh=tmp_path / "fresh") for word in words))
    assert (done.exit_code, sentence in done.stderr) == (code, True), done.output
    assert done.stderr.splitlines()[-1].startswith("fedge: ")


# Trackers, as they are


def test_tensorboard_reads_back_what_was_run(runs, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = call(
        "export", runs / "lr=0.1_seed=0", runs / "lr=0.2_seed=0", "--to", "tensorboard", "--out", tmp_path / "tb"
    )
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir(tmp_path / "tb")) == ["lr=0.1", "lr=0.2"]
    events = EventAccumulator(str(tmp_path / "tb/lr=0.2")).Reload()
    rows = [json.loads(line) for line in (runs / "lr=0.2_seed=0/metrics.jsonl").read_text().splitlines()]
    assert [(e.step, e.value) for e in events.Scalars("accuracy")] == [
        (row["round"], pytest.approx(row["accuracy"])) for row in rows
    ]
    assert events.Scalars("bytes/all")[-1].value == pytest.approx(sum(rows[-1]["bytes"].values()))


@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")  # how MLflow asks its database
def test_mlflow_reads_back_what_was_run(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "")  # so that it is taken away again
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    done = call("export", runs, "--to", "mlflow", "--out", tmp_path / "ml")
    assert done.exit_code == 0, done.output
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    import mlflow  # the real one, without its web page: mlflow-skinny, and what it needs to keep a database

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'ml/mlflow.db'}")
    found = client.search_runs([client.get_experiment_by_name("fedge").experiment_id])
    assert len(found) == 6
    last = next(run for run in found if run.data.params["lr"] == "0.2" and run.data.params["seed"] == "1")
    assert last.info.status == "FINISHED"
    assert [m.step for m in client.get_metric_history(last.info.run_id, "accuracy")] == [1, 2, 3]
    assert last.data.metrics["accuracy"] == pytest.approx(0.2 + 0.01 + 0.3)


def test_weights_and_biases_gets_every_row_offline(runs, monkeypatch):
    """Its own package wants a process and a home folder: here stands a double at the four names that are called."""
    heard = []

    class Run:
        def log(self, numbers, step):
            heard.append((step, numbers["accuracy"]))

        def finish(self, exit_code):
            heard.append(exit_code)

    def init(**given):
        heard.append((given["name"], given["mode"], given["config"]["lr"]))
        return Run()

    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    monkeypatch.setattr(sys.modules["wandb"], "init", init, raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.chdir(runs.parent)
    done = call("export", runs / "lr=0.2_seed=0", "--to", "wandb")
    assert done.exit_code == 0, done.output
    assert heard[0] == ("lr=0.2_seed=0", "offline", 0.2)
    assert heard[1:] == [(n, pytest.approx(0.2 + 0.1 * n)) for n in (1, 2, 3)] + [0]


def test_numbers_of_a_row():
    row = {"round": 2, "loss": None, "accuracy": 0.5, "edge_accuracies": [0.5], "bytes": {"a": 1, "b": 2}}
    assert numbers_of(row) == {"accuracy": 0.5, "bytes/a": 1.0, "bytes/b": 2.0, "bytes/all": 3.0}
