"""Runs that advance together give the rows of runs made one by one."""

import jax
import numpy as np
import pytest
from jax.errors import JaxRuntimeError

from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.runner.cache import ProgramCache
from fedge.studies import stacked_runs
from fedge.studies.stacked_runs import histories
from tests.helpers import toy

KEYS = {"clients": 6, "cells": 3, "local_steps": 2, "edge_rounds": 1, "rounds": 5, "eval_every": 2, "batch": 4,
        "devices": 1, "data": "fashion-mini", "model": "mlp", "train_eval": True, "partition": "iid"}  # fmt: skip


def rows(configs, crowded, monkeypatch):
    monkeypatch.setattr(stacked_runs, "_worth_while", lambda configs: crowded)
    found = dict(histories(configs, toy((28, 28, 1), classes=10), ProgramCache()))
    return [found[n] for n in range(len(configs))]


def test_rows_are_those_of_runs_one_by_one(monkeypatch, caplog):
    """Two shapes in one list, SD-FEEL's with edges' own models; two of the runs differ in nothing but the rate, and the
    last one has no company."""
    sdfeel = [{"algorithm": "sdfeel", "seed": s, "lr": lr} for s, lr in ((0, 0.1), (1, 0.1), (1, 0.02))]
    hist = [{"algorithm": "hist", "seed": s} for s in (3, 4)]
    configs = [Config.of(KEYS | keys) for keys in [sdfeel[0], *hist, *sdfeel[1:], {"algorithm": "fedavg"}]]
    stacks = [stack.places for stack in stacked_runs._stacks(configs, toy((28, 28, 1), classes=10))]
    assert sorted(stacks) == [[0, 3, 4], [1, 2]]
    alone, stacked = (rows(configs, how, monkeypatch) for how in (False, True))
    assert len({run[-1]["loss"] for run in stacked}) == 6
    for one, other in zip(alone, stacked, strict=True):
        assert [row["round"] for row in one] == [2, 4, 5]
        for row, same in zip(one, other, strict=True):
            assert row.keys() == same.keys()
            exact = {"round", "iteration", "bytes", "simulated_seconds"}
            assert {k: row[k] for k in exact} == {k: same[k] for k in exact}
            for key in row.keys() - exact:
                assert same[key] == pytest.approx(row[key], rel=2e-5, abs=1e-7), key


def test_a_stack_is_no_larger_than_there_is_room_for(monkeypatch):
    configs = [Config.of(KEYS | {"algorithm": "fedavg", "seed": s}) for s in range(5)]
    data = toy((28, 28, 1), classes=10)
    monkeypatch.setattr(stacked_runs, "ROOM", 2 * 6 * 238_510 * 4)
    assert [stack.places for stack in stacked_runs._stacks(configs, data)] == [[0, 1], [2, 3]]
    monkeypatch.setattr(stacked_runs, "ROOM", 6 * 238_510 * 4)
    assert not list(stacked_runs._stacks(configs, data))


def test_a_stack_that_diverges_says_so(monkeypatch, caplog):
    configs = [Config.of(KEYS | {"algorithm": "fedavg", "seed": s, "lr": 1e20, "eval_every": 5}) for s in (0, 1)]
    found = rows(configs, True, monkeypatch)
    assert [run[-1]["global_loss"] for run in found] == [None, None]
    assert caplog.text.count("diverged") == 2


def test_graphs_of_other_shapes_are_no_company():
    """Seeds draw other graphs, whose sparse form has as many columns as the most neighbours of an edge."""
    drawn = {"algorithm": "sdfeel", "graph": "erdos_renyi", "density": 0.04, "clients": 150, "cells": 150}
    configs = [Config.of(KEYS | drawn | {"seed": s}) for s in range(4)]
    data = toy((28, 28, 1), train=200, classes=10)
    shapes = {}
    for n, config in enumerate(configs):
        constants = experiment(config, data).job.algorithm.constants
        shapes.setdefault(str([np.shape(x) for x in jax.tree.leaves(constants)]), []).append(n)
    assert len(shapes) > 1
    stacks = [stack.places for stack in stacked_runs._stacks(configs, data)]
    assert stacks == [places for places in shapes.values() if len(places) > 1]


def test_a_stack_that_does_not_fit_is_run_one_by_one(monkeypatch, caplog):
    def full(stacks, cache):
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    configs = [Config.of(KEYS | {"algorithm": "fedavg", "seed": s, "eval_every": 5}) for s in (0, 1)]
    expected = rows(configs, False, monkeypatch)
    monkeypatch.setattr(stacked_runs, "_compile", full)
    assert rows(configs, True, monkeypatch) == expected
    assert "did not fit" in caplog.text


def test_on_a_cpu_runs_are_made_one_by_one():
    assert not stacked_runs._worth_while([Config.of(KEYS | {"algorithm": "fedavg"})])
