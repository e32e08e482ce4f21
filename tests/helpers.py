"""Small experiments, and the operator form of an algorithm to hold engines against."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedge.core.contract import Algorithm
from fedge.core.tree import Weights
from fedge.data import Dataset
from fedge.engine import ENGINES
from fedge.experiment.build import Experiment, experiment
from fedge.experiment.config import Config

SHAPES = {"mlp": (5, 5, 1), "cnn": (16, 16, 1), "resnet18": (16, 16, 3)}


def toy(shape: tuple[int, ...] = (5, 5, 1), train: int = 90, test: int = 31, classes: int = 4) -> Dataset:
    """Random images whose labels are random too: enough to compare engines, too little to learn from."""
    rng = np.random.default_rng(7)
    draw = lambda n: (rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, classes, n))  # noqa: E731
    return Dataset.of(*draw(train), *draw(test), classes=classes, scale=((0.5,), (0.5,)))


def small(**keys: Any) -> Experiment:
    """An experiment on toy data, small unless said otherwise. Call it inside the precision it is meant for."""
    defaults = {"algorithm": "hierfavg", "clients": 7, "cells": 3, "local_steps": 3, "edge_rounds": 2, "batch": 4,
                "lr": 0.1, "partition": "dirichlet", "model": "mlp"}  # fmt: skip
    config = defaults | keys
    dataset = toy(SHAPES[config["model"]])
    return experiment(Config.of(config | {"data": "custom"}), dataset)


def train(made: Experiment, rounds: int = 2, engine: str | None = None) -> tuple[Weights, list[float]]:
    """The evaluated model and the losses after some rounds."""
    machine = ENGINES[engine or made.config.engine](made.job)
    state, losses = made.start, []
    for index in range(rounds):
        state, loss = machine.round(state, index)
        losses.append(loss)
    return made.evaluated(state), losses


def by_operator(made: Experiment, rounds: int = 2) -> Weights:
    """W ← (W − ηG(W))·T_k over all clients, with the matrices the algorithm states; then u = W·m. Plain SGD only."""
    algorithm, task, data, key = made.job.algorithm, made.job.task, made.job.data, made.job.key
    topology, period = algorithm.topology, algorithm.schedule.period
    initial = made.evaluated(made.start)
    replicas = {path: jnp.stack([w] * topology.clients) for path, w in initial.items()}
    gradient = jax.jit(task.gradient)
    for k in range(1, rounds * period + 1):
        stepped = []
        for i in range(topology.clients):
            mine = {path: w[i] for path, w in replicas.items()}
            index = task.indices(key, data, jnp.int32(i), jnp.int32(k - 1), 1)[0]
            _, g, statistics = gradient(mine, data, index, key, jnp.int32(i), jnp.int32(k - 1))
            stepped.append({p: w - made.config.lr * g[p] if p in g else statistics[p] for p, w in mine.items()})
        for path in replicas:
            columns = jnp.stack([w[path] for w in stepped])
            replicas[path] = jnp.tensordot(jnp.asarray(algorithm.operator(k, path)).T, columns, 1)
    return {path: jnp.tensordot(jnp.asarray(topology.weight), w, 1) for path, w in replicas.items()}


def distance(a: Weights, b: Weights) -> float:
    assert a.keys() == b.keys()
    return max(float(np.max(np.abs(np.asarray(a[path]) - np.asarray(b[path])))) for path in a)


def assert_mean_preserved(algorithm: Algorithm, path: str = "fc1/kernel") -> None:
    """Columns of each T_k sum to one and T_k·m = m, over two periods."""
    m = algorithm.topology.weight
    for k in range(1, 2 * algorithm.schedule.period + 1):
        operator = algorithm.operator(k, path)
        np.testing.assert_allclose(operator.sum(0), 1, atol=1e-12)
        np.testing.assert_allclose(operator @ m, m, atol=1e-12)
