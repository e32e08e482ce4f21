"""A run is read back from its folder, and shown as a table, a frame and a figure."""

import base64
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import fedge
from fedge.errors import ConfigError, RunError
from fedge.runner.cache import ProgramCache
from tests.helpers import toy

KEYS = {"algorithm": "hierfavg", "clients": 4, "cells": 2, "local_steps": 1, "edge_rounds": 2, "rounds": 6, "batch": 5,
        "partition": "iid", "eval_every": 2, "checkpoint_every": 3}  # fmt: skip
CACHE = ProgramCache()
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loaded")
    return fedge.run(KEYS | {"target": 99.0, "target_metric": "loss"}, out=folder / "a<b>", dataset=toy(), cache=CACHE)


def test_what_is_read_back_is_what_was_returned(made):
    again = fedge.load(made.out)
    assert again.to_json() | {"wall_seconds": 0} == made.to_json() | {"wall_seconds": 0}
    assert again.reached == made.reached
    assert again.weights.keys() == made.weights.keys()
    assert all(np.array_equal(again.weights[path], w) for path, w in made.weights.items())
    with pytest.raises(ConfigError, match="an object passed in from Python"):  # the data are not in the folder
        _ = again.experiment


def test_the_experiment_of_a_run_is_made_again(tmp_path):
    made = fedge.run(KEYS, rounds=1, data="fashion-mini", out=tmp_path / "x", cache=CACHE)
    again = fedge.load(tmp_path / "x").experiment
    assert np.array_equal(again.partition.order, made.experiment.partition.order)


class Stop(fedge.Listener):
    def tested(self, row, config):
        return row["round"] == 2


class Fail(fedge.Listener):
    def tested(self, row, config):
        raise fedge.DataError("x")


def test_a_run_that_is_not_over_has_its_rows_so_far(tmp_path):
    early = fedge.run(KEYS, out=tmp_path / "early", dataset=toy(), cache=CACHE, listener=Stop())
    again = fedge.load(tmp_path / "early")
    assert (again.stopped, again.history) == (True, early.history)
    with pytest.raises(fedge.DataError):
        fedge.run(KEYS, out=tmp_path / "cut", dataset=toy(), cache=CACHE, listener=Fail())
    cut = fedge.load(tmp_path / "cut")
    assert [row["round"] for row in cut.history] == [2]
    with pytest.raises(RunError, match="is not over and has no final weights; fedge run --resume"):
        _ = cut.weights


def test_folders_without_a_run_get_one_sentence(made, tmp_path):
    with pytest.raises(RunError, match=r"does not hold a run$"):
        fedge.load(tmp_path / "nowhere")
    with pytest.raises(RunError, match="it has runs in it, load one of them: a<b>"):
        fedge.load(made.out.parent)


def test_a_frame_has_a_line_for_each_row(made, monkeypatch):
    heard = {}
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda lines: heard.setdefault("lines", lines)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert made.frame()[-1]["bytes"] == sum(made.final["bytes"].values())
    assert heard["lines"][0]["bytes_edge_to_cloud"] == made.history[0]["bytes"]["edge_to_cloud"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="needs pandas"):
        made.frame()


def test_a_frame_of_pandas_itself(made):
    pandas = pytest.importorskip("pandas", reason="pandas is no dependency: it takes 84 MB, and is called once")
    frame = made.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["loss"]) == [row["loss"] for row in made.history]


def test_a_notebook_shows_a_table_and_a_figure(made):
    html = made._repr_html_()
    assert "a&lt;b&gt;" in html
    assert f"{made.final['accuracy']:.1%}" in html
    assert base64.b64decode(re.search(r"base64,([^\"]+)\"", html)[1]).startswith(PNG)


def test_a_figure_displays_itself(made):
    figure = made.plot(fedge.load(made.out), x="bytes", y="loss")
    assert figure._repr_png_().startswith(PNG)
    assert figure.axes[0].get_ylabel() == "test loss"


def test_a_notebook_shows_progress_unless_told_otherwise(tmp_path, monkeypatch):
    shown = []
    handle = SimpleNamespace(update=shown.append)
    shell = type("ZMQInteractiveShell", (), {})()
    display = SimpleNamespace(HTML=lambda text: text, display=lambda text, display_id: shown.append(text) or handle)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    fedge.run(KEYS, out=tmp_path / "told", dataset=toy(), cache=CACHE)
    assert "compiling" in shown[0]
    assert "round 6/6" in shown[-1]
    assert "accuracy" in shown[-1]
    shown.clear()
    fedge.run(KEYS, out=tmp_path / "silent", dataset=toy(), cache=CACHE, listener=[])
    assert shown == []
