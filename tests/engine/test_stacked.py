"""Several jobs in one program are the jobs one by one."""

import jax
import pytest

from fedge.engine import Stacked, Vectorised
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from tests.helpers import SHAPES, distance, toy

KEYS = {
    "clients": 6, "cells": 3, "local_steps": 2, "edge_rounds": 2, "rounds": 3, "batch": 4, "dtype": "float64",
    "devices": 1, "partition": "dirichlet", "data": "custom",
}  # fmt: skip
CASES = [
    {"algorithm": "fedavg", "model": "cnn"},
    {"algorithm": "hist", "dropout": 0.3, "participation": 0.5},
    {"algorithm": "sdfeel", "graph": "ring", "gossip": 2},
    {"algorithm": "hiersfl", "model": "cnn", "cut": "pool2"},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["algorithm"])
def test_each_job_is_what_it_is_alone(case):
    """Other seeds, so other clients' data, initial weights and draws, and other rates."""
    with jax.enable_x64(True):
        configs = [Config.of(KEYS | case | {"seed": seed, "lr": lr}) for seed, lr in ((0, 0.1), (1, 0.1), (1, 0.01))]
        data = toy(SHAPES[configs[0].model])
        runs = [experiment(config, data) for config in configs]
        crowd = Stacked([made.job for made in runs])
        states, losses = crowd.rounds(crowd.start([made.start for made in runs]), 0, 3)
        engine = Vectorised(runs[0].job)
        for n, made in enumerate(runs):
            engine.retarget(made.job)
            alone, loss = engine.rounds(made.start, 0, 3)
            assert distance({p: w[n] for p, w in states.items()}, alone) < 1e-12
            assert losses[n] == pytest.approx(loss, abs=1e-12)
        assert len({float(x) for x in losses}) == 3


def test_other_jobs_of_the_same_shape_are_not_compiled_again():
    def runs(seeds):
        return [experiment(Config.of(KEYS | CASES[0] | {"seed": s, "dtype": "float32"}), data) for s in seeds]

    data = toy(SHAPES["cnn"])
    first, second = runs([0, 1]), runs([2, 3])
    crowd = Stacked([made.job for made in first])
    crowd.rounds(crowd.start([made.start for made in first]), 0, 1)
    spent = crowd.compile_seconds
    crowd.retarget([made.job for made in second])
    states, _ = crowd.rounds(crowd.start([made.start for made in second]), 0, 1)
    assert crowd.compile_seconds == spent
    alone, _ = Vectorised(second[1].job).rounds(second[1].start, 0, 1)
    assert distance({p: w[1] for p, w in states.items()}, alone) < 1e-5


def test_only_jobs_with_the_same_samples_on_one_device():
    def job(devices=1):
        config = Config.of(KEYS | CASES[0] | {"data": "custom", "dtype": "float32", "devices": devices})
        return experiment(config, toy(SHAPES["cnn"])).job

    with pytest.raises(ValueError, match="same samples"):
        Stacked([job(), job()])
    with pytest.raises(ValueError, match="one device"):
        Stacked([job(devices=2)])
