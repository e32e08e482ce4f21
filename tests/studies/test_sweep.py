"""A sweep: which runs a grid means, what its table says, and that death on the way changes nothing of it."""

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

import fedge
from fedge.cli import app
from fedge.errors import ConfigError, RunError
from fedge.runner.cache import ProgramCache
from fedge.studies.grid import by_shape, make_plan, values_of
from fedge.studies.interval import interval
from fedge.studies.sweep_table import Outcome, csv_of, lines_of
from fedge.view.sweep_table import cells_of, latex_of
from tests.runner.deaths import reaper

KEYS = {"clients": 4, "cells": 2, "rounds": 2, "local_steps": 1, "edge_rounds": 1, "batch": 5, "devices": 2}
WORDS = ["hierfavg", "lr=0.02,0.1", *(f"{key}={value}" for key, value in KEYS.items())]


def call(*words):
    return CliRunner().invoke(app, ["sweep", *map(str, words)])


# Which runs


def test_a_grid_is_every_combination_over_seeds():
    plan = make_plan(["hierfavg"], {"lr": "0.02,0.05", "batch": "5,10", "clients": "6"}, 2)
    assert len(plan) == 8
    assert list(plan)[:2] == ["hierfavg_lr=0.02_batch=5_seed=0", "hierfavg_lr=0.02_batch=5_seed=1"]
    assert plan["hierfavg_lr=0.05_batch=10_seed=1"] == {
        "algorithm": "hierfavg", "lr": "0.05", "batch": "10", "clients": "6", "seed": 1,
    }  # fmt: skip


def test_keys_go_to_the_algorithms_that_read_them():
    plan = make_plan(["hierfavg", "sdfeel"], {"gossip": "1,2", "lr": "0.1"})
    assert [("gossip" in keys, keys["algorithm"]) for keys in plan.values()] == [
        (False, "hierfavg"), (True, "sdfeel"), (True, "sdfeel"),
    ]  # fmt: skip


def test_seeds_follow_the_one_that_is_given():
    assert [keys["seed"] for keys in make_plan(["fedavg"], {"seed": "7"}, 3).values()] == [7, 8, 9]
    assert [keys["seed"] for keys in make_plan(["fedavg"], {}, [4, 2]).values()] == [4, 2]
    assert [keys["seed"] for keys in make_plan(["fedavg"], {"seed": "4,2"}).values()] == ["4", "2"]


def test_a_list_of_metrics_is_one_value():
    assert values_of("metrics", "cells,f1") == ["cells,f1"]


@pytest.mark.parametrize(
    ("names", "keys", "seeds", "sentence"),
    [
        ([], {"lr": "0.1"}, None, "a sweep needs an algorithm"),
        (["hirfavg"], {}, None, "did you mean 'hierfavg'"),
        (["fedavg"], {"lrr": "0.1,0.2"}, None, "unknown key 'lrr'.*did you mean 'lr'"),
        (["fedavg"], {"lr": "0.1,"}, None, "no value between two commas"),
        (["fedavg"], {"lr": "0.1,x"}, None, "lr=x is not allowed"),
        (["fedavg"], {"lr": "0.1,0.10"}, None, "would be one and the same run"),
        (["fedavg", "hierfavg"], {"gossip": "1,2"}, None, "gossip=1 has no meaning for fedavg"),
        (["fedavg"], {"algorithm": "hist"}, None, "name the algorithms to sweep"),
        (["fedavg"], {"seed": "1"}, [1, 2], "seed is given twice"),
        (["fedavg"], {}, 0, "seeds=0 is not allowed"),
        (["fedavg"], {"lr": ",".join(map(str, range(1, 202)))}, 5, r"1,005 runs; allowed without --yes: 1,000"),
        (["fedavg"], {"lr": "1,2,3", "batch": "1,2,3", "clients": "6,7"}, 10**6, "18,000,000 runs"),
    ],
)
def test_a_grid_that_cannot_be_gets_one_sentence(names, keys, seeds, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_plan(names, keys, seeds)


def test_many_runs_are_planned_when_they_are_meant():
    keys = {"lr": ",".join(map(str, range(1, 202)))}
    assert len(make_plan(["fedavg"], keys, 5, many=True)) == 1005


def test_runs_of_one_shape_follow_one_another():
    plan = make_plan(["fedavg"], {"batch": "5,10", "lr": "0.1,0.2"}, 2)
    shapes = [plan[name]["batch"] for name in by_shape(plan)]
    assert shapes == ["5"] * 4 + ["10"] * 4
    assert sorted(by_shape(plan)) == sorted(plan)


# What the table says


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9))
def test_intervals_are_those_of_scipy(values):
    found, spread = interval(values), stats.sem(values)
    if spread > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, sum(values) / len(values), spread)
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-9)
        assert found.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-6, abs=1e-12)


def row(accuracy, loss=1.0):
    return {"round": 3, "iteration": 6, "accuracy": accuracy, "loss": loss, "simulated_seconds": 9.0,
            "bytes": {"client_to_edge": 2_000_000, "edge_to_cloud": 1_000_000}}  # fmt: skip


def example():
    """Two rates over three seeds; of the second a seed diverged."""
    plan = make_plan(["fedavg"], {"lr": "0.1,0.2"}, 3)
    ends = [0.5, 0.6, 0.7, 0.5, 0.6, None]
    outcomes = {
        name: Outcome(row(end, None if end is None else 1.0), end is None, None)
        for name, end in zip(plan, ends, strict=True)
    }
    return lines_of(plan, outcomes)


def test_a_line_is_a_mean_over_seeds_with_its_interval():
    first, second = example()
    assert (first.setting, first.seeds, first.diverged) == ({"lr": "0.1"}, 3, 0)
    half = 4.302652729911275 * 0.1 / math.sqrt(3)  # t of 2 degrees of freedom, from a table; the deviation is 0.1
    assert first.columns["accuracy"].mean == pytest.approx(0.6)
    assert first.columns["accuracy"].half == pytest.approx(half)
    assert first.columns["bytes"][:3] == (3e6, 3e6, 3e6)
    assert (second.diverged, second.columns["accuracy"]) == (1, None)  # the mean of those left would flatter it


def test_the_table_in_words_csv_and_latex():
    lines = example()
    heads, first, second = cells_of(lines)
    assert heads == ["lr", "seeds", "accuracy %", "test loss", "simulated s", "sent MB"]
    assert first == ["0.1", "3", "60.0 ± 24.8", "1.000", "9.0", "3"]
    assert second[:3] == ["0.2", "3", "1 of 3 diverged"]
    table = list(csv.DictReader(io.StringIO(csv_of(lines))))
    assert float(table[0]["accuracy"]) == pytest.approx(0.6)
    assert float(table[0]["accuracy_ci95"]) == pytest.approx(0.2484, abs=1e-4)
    assert (table[1]["accuracy"], table[1]["diverged"]) == ("", "1")
    tex = latex_of(lines)
    assert r"lr & seeds & accuracy \% & test loss" in tex
    assert r"0.1 & 3 & 60.0 $\pm$ 24.8 & 1.000 & 9.0 & 3 \\" in tex
    assert tex.count("{") == tex.count("}")


# Death on the way


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """This sweep was never stopped."""
    folder = tmp_path_factory.mktemp("sweeps") / "whole"
    done = call(*WORDS, "--seeds", 2, "--out", folder)
    assert done.exit_code == 0, done.output
    return folder, done


def test_the_command_prints_a_table_with_intervals(whole):
    folder, done = whole
    assert "accuracy %" in done.stdout
    assert done.stdout.count(" ± ") >= 4
    assert "4/4  hierfavg_lr=0.1_seed=1: accuracy" in done.stderr
    assert {p.name for p in folder.iterdir() if p.is_file()} >= {"sweep.json", "table.csv", "table.tex", "report.html"}
    assert len(json.loads((folder / "sweep.json").read_text())["runs"]) == 4
    assert CliRunner().invoke(app, ["show", str(folder)]).stdout.count("finished") == 4


def test_a_killed_sweep_has_the_same_table_when_resumed(whole, tmp_path):
    """The process is killed by SIGKILL after its first run, be it in the middle of another."""
    folder = tmp_path / "cut"
    process = subprocess.Popen([sys.executable, "-m", "fedge", "sweep", *WORDS, "--seeds", "2", "--out", str(folder)],
                               env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        first, end = folder / "hierfavg_lr=0.02_seed=0/result.json", time.monotonic() + 300
        while not first.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert first.exists()
    resumed = call("--resume", folder)
    assert resumed.exit_code == 0, resumed.output
    for name in ("table.csv", "table.tex"):
        assert (folder / name).read_bytes() == (whole[0] / name).read_bytes()


def test_a_sweep_survives_every_death(tmp_path, monkeypatch):
    cache = ProgramCache()
    monkeypatch.setattr("fedge.studies.sweep.ProgramCache", lambda engines: cache)

    def live(folder):
        return fedge.sweep("fedavg", KEYS | {"rounds": 1}, seeds=2, out=folder)

    with reaper.strikes(tmp_path / "whole"):
        expected = csv_of(live(tmp_path / "whole").table)
    count = reaper.seen
    assert count > 40
    for moment in range(0, count, 9):
        folder = tmp_path / str(moment)
        with reaper.strikes(folder, moment):
            live(folder)
            pytest.fail("it was to die")
        resumed = fedge.sweep(resume=folder) if (folder / "sweep.json").exists() else live(folder)
        assert csv_of(resumed.table) == expected, moment


def test_settings_of_one_shape_share_a_program(whole, tmp_path):
    seen = []

    class Watch(fedge.Listener):
        def finished(self, result):
            seen.append(result.compile_seconds)

    fedge.sweep("hierfavg", KEYS, lr=[0.02, 0.1], seeds=2, out=tmp_path / "x", listener=Watch())
    assert seen[0] > 0
    assert seen[1:] == [0.0, 0.0, 0.0]


class Impatient(fedge.Listener):
    def tested(self, row, config):
        return config.seed == 1


def test_a_sweep_whose_listener_stops_a_run_ends_there_and_can_be_resumed(whole, tmp_path):
    folder = tmp_path / "stopped"
    with pytest.raises(RunError, match=f"_seed=1 was stopped before its end.*fedge sweep --resume {folder}"):
        fedge.sweep("hierfavg", KEYS, lr=[0.02, 0.1], seeds=2, out=folder, listener=Impatient())
    assert csv_of(fedge.sweep(resume=folder).table) == (whole[0] / "table.csv").read_text()


def test_a_run_that_is_not_the_planned_one_is_refused(whole, tmp_path):
    folder = tmp_path / "moved"
    fedge.sweep("hierfavg", KEYS, lr=[0.02, 0.1], out=folder)
    one, other = (folder / f"hierfavg_lr={lr}_seed=0" for lr in (0.02, 0.1))
    one.rename(tmp_path / "aside")
    other.rename(one)
    with pytest.raises(RunError, match=r"holds another run than the plan says \(lr=0.1\)"):
        fedge.sweep(resume=folder)


def test_a_plan_that_was_edited_is_refused(whole, tmp_path):
    stored = json.loads((whole[0] / "sweep.json").read_text())
    folder = tmp_path / "edited"
    folder.mkdir()
    name = next(iter(stored["runs"]))
    for runs, said in ((stored["runs"] | {name: stored["runs"][name] | {"lr": 1}}, "was changed since the sweep"),
                       ({"../x": {}}, "is damaged")):  # fmt: skip
        (folder / "sweep.json").write_text(json.dumps(stored | {"runs": runs}))
        with pytest.raises(RunError, match=said):
            fedge.sweep(resume=folder)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["fedavg", "lrr=1,2"], 2, "unknown key 'lrr'"),
        (["fedavg", f"lr={','.join(map(str, range(1, 202)))}", "--seeds", 5], 2, "add --yes if they are meant"),
        (["--resume", "nowhere"], 4, "does not hold a run"),
        (["fedavg", "--resume", "x"], 2, "give --resume DIR alone"),
        (["fedavg", "cells=100", "lr=0.1,0.2"], 2, "cells=100 is more than clients=60"),
        (["hist", "cells=4,300"], 2, "cells=300"),
    ],
)
def test_bad_input_gets_one_sentence(words, code, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert (done.exit_code, done.stderr.count("\n")) == (code, 1), done.output
    assert sentence in done.stderr
    assert not (tmp_path / "runs").exists()


def test_runs_that_all_diverged_are_said_with_their_exit_code(tmp_path):
    done = call("fedavg", *WORDS[2:], "lr=1e20", "--seeds", 2, "--out", tmp_path / "x")
    assert done.exit_code == 5
    assert "2 of 2 diverged" in done.stdout
