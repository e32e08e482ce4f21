"""Runs that share a cache share programs only where they may."""

import optax

import fedge
from fedge.runner.cache import ProgramCache
from tests.helpers import distance, toy

KEYS = {"algorithm": "hierfavg", "clients": 6, "cells": 2, "rounds": 2, "local_steps": 2, "edge_rounds": 1, "batch": 4}


def test_another_optimiser_is_another_program(tmp_path):
    shared, data = ProgramCache(), toy()
    moved, still = (
        fedge.run(KEYS, out=tmp_path / name, dataset=data, cache=shared, optimiser=make, partition="iid")
        for name, make in (("a", optax.sgd), ("b", lambda lr: optax.sgd(0 * lr)))
    )
    assert distance(moved.weights, still.weights) > 1e-3
    assert distance(still.weights, still.experiment.start) < 1e-6


def test_partitions_that_use_different_numbers_of_samples(tmp_path):
    """class_split=random_class leaves out other samples with every seed."""
    shared = ProgramCache()
    keys = KEYS | {"partition": "one_class", "class_split": "random_class", "clients": 20, "train_eval": True}
    for seed in range(3):
        alone = fedge.run(keys, seed=seed, out=tmp_path / f"alone{seed}")
        together = fedge.run(keys, seed=seed, out=tmp_path / f"shared{seed}", cache=shared)
        assert alone.history == together.history
