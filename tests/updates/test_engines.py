"""Updates inside an engine: the naive one and the fast one agree in float64, however the work lies on the devices."""

import jax
import numpy as np
import pytest

from fedge.core.update import PLAIN, Kept
from fedge.engine import Reference, Stacked, Vectorised, driver
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from tests.helpers import distance, small, toy, train

ALL = {  # one run for each algorithm with as much on its updates' way as it can have
    "fedavg": {"correction": "scaffold", "codec": "topk:0.3", "cloud_rule": "geometric", "participation": 0.6},
    "hierfavg": {"prox": 0.5, "prox_anchor": "cloud", "correction": "mtgc", "codec": "qsgd8", "down_codec": "qsgd8",
                 "cloud_codec": "int8", "edge_rule": "trimmed:0.4", "cloud_rule": "median", "server": "adam"},
    "hist": {"prox": 0.5, "codec": "topk:0.3:plain", "cloud_codec": "qsgd4", "edge_rule": "median",
             "server": "momentum"},
    "sdfeel": {"prox": 0.5, "correction": "scaffold", "codec": "int8", "edge_rule": "clip:0.1"},
    "hiersfl": {"prox": 0.5, "prox_anchor": "cloud", "codec": "int8", "down_codec": "topk:0.5:plain",
                "cloud_codec": "int8", "cloud_rule": "geometric", "server": "yogi"},
}  # fmt: skip
KEYS = {"dtype": "float64", "clients": 8, "edge_rounds": 2, "local_steps": 2, "model": "mlp"}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def assert_same(a, b, atol=1e-12):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=atol)


@pytest.mark.parametrize("algorithm", ALL)
def test_engines_agree_on_all_that_happens_to_updates(algorithm):
    """States agree too, with what clients, cells and the server remember; and each key on its own does something."""
    made = small(algorithm=algorithm, devices=1, **KEYS, **ALL[algorithm])
    naive, loss = Reference(made.job).rounds(made.start, 0, 2)
    fast, same = Vectorised(made.job).rounds(made.start, 0, 2)
    assert_same(naive, fast)
    assert loss == pytest.approx(same, rel=1e-12)
    assert isinstance(fast, Kept) is made.job.algorithm.way.keeps
    if isinstance(fast, Kept):
        assert min(float(abs(x).max()) for x in jax.tree.leaves(fast.memory)) > 1e-6
    plain = small(algorithm=algorithm, devices=1, **KEYS)
    assert plain.job.algorithm.way == PLAIN
    assert distance(made.evaluated(fast), train(plain)[0]) > 1e-3


@pytest.mark.parametrize(("algorithm", "chunk", "devices"), [("fedavg", 2, 2), ("hierfavg", 3, 2), ("hiersfl", 1, 2)])
def test_the_layout_changes_rounding_only(algorithm, chunk, devices):
    """With two devices clients' rows lie on both, where their number is even."""
    keys = KEYS | ALL[algorithm]
    one = small(algorithm=algorithm, devices=1, **keys)
    other = small(algorithm=algorithm, devices=devices, chunk=chunk, **keys)
    expected, _ = Vectorised(one.job).rounds(one.start, 0, 2)
    found, _ = Vectorised(other.job).rounds(other.start, 0, 2)
    assert_same(found, expected)
    if isinstance(found, Kept):
        rows = [*found.memory.shift.values(), *found.memory.lost.values()]
        assert all(len(row.sharding.device_set) == 2 and not row.is_fully_replicated for row in rows)


def test_a_round_in_several_calls_is_the_same(monkeypatch):
    """What a CPU does with very many clients, where nothing has to be kept for each of them."""
    keys = KEYS | {"clients": 29, "devices": 2, "prox": 0.5, "prox_anchor": "cloud", "codec": "qsgd8",
                   "down_codec": "int8", "cloud_codec": "int8", "edge_server": "adam", "server": "adam"}  # fmt: skip
    made = small(**keys)
    whole, _ = Vectorised(made.job).rounds(made.start, 0, 2)
    monkeypatch.setattr(driver, "STEPS_PER_CALL", 7)
    engine = Vectorised(made.job)
    assert engine.splits_a_round
    assert_same(engine.rounds(made.start, 0, 2)[0], whole)


def test_runs_that_advance_together_have_their_own_memory():
    keys = KEYS | {"algorithm": "hierfavg", "correction": "scaffold", "codec": "topk:0.3", "edge_server": "momentum",
                   "devices": 1}  # fmt: skip
    config = Config.of(keys | {"data": "custom", "partition": "iid", "cells": 3, "batch": 4})
    data = toy()
    runs = [experiment(config.model_copy(update={"seed": seed}), data) for seed in (0, 4)]
    together = Stacked([made.job for made in runs])
    states, _ = together.rounds(together.start([made.start for made in runs]), 0, 2)
    engine = Vectorised(runs[0].job)
    for n, made in enumerate(runs):
        engine.retarget(made.job)
        alone, _ = engine.rounds(made.start, 0, 2)
        assert_same(jax.tree.map(lambda x, n=n: x[n], states), alone)
