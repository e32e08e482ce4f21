"""Tests share small experiments, and the operator form of an algorithm to hold engines against."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from fedge.algorithms import ALGORITHMS
from fedge.core.contract import Algorithm
from fedge.core.tree import Weights
from fedge.data import Dataset
from fedge.engine import ENGINES, Engine
from fedge.experiment.build import Experiment, experiment
from fedge.experiment.config import Config
from fedge.models import Model, from_nnx
from fedge.models.layers import conv, linear
from fedge.models.resnet import Block, ResNet18, norm
from fedge.runner.cache import shape_of

SHAPES = {"mlp": (5, 5, 1), "cnn": (16, 16, 1), "resnet18": (16, 16, 3), "narrow": (16, 16, 3), "shallow": (8, 8, 3)}


class Shallow(nnx.Module):
    """This is the stem and two blocks of ResNet-18, one with a projection, where its depth is not what is tested."""

    stages: ClassVar = {"stem": ("stem", "stem_norm"), "layer1": ("layer1",), "layer2": ("layer2",), "head": ("fc",)}

    def __init__(self, kind: str, rngs: nnx.Rngs) -> None:
        self.stem, self.stem_norm = conv(3, 32, 3, rngs, padding=1, bias=False), norm(32, kind, rngs)
        self.layer1 = Block(32, 32, 1, kind, "layer1", rngs)
        self.layer2 = Block(32, 64, 2, kind, "layer2", rngs)
        self.fc = linear(64, 4, rngs)

    def stage(self, name: str, x: Any) -> Any:
        if name == "stem":
            return nnx.relu(self.stem_norm(self.stem(x)))
        return self.fc(x.mean((1, 2))) if name == "head" else getattr(self, name)(x)

    def __call__(self, x: Any) -> Any:
        for name in self.stages:
            x = self.stage(name, x)
        return x


@cache
def shallow(bn: Any) -> Model:
    statistics = "avg_all" if bn == "groupnorm" else bn
    return from_nnx(partial(Shallow, bn), input_shape=SHAPES["shallow"], classes=4, statistics=statistics)


class Narrow(ResNet18):
    """This is ResNet-18 in all its depth, with a quarter of its channels: a sixteenth of the memory."""

    widths = (16, 32, 64, 128)


@cache
def narrow(bn: Any) -> Model:
    return from_nnx(partial(Narrow, 3, 4, bn), input_shape=SHAPES["narrow"], classes=4, statistics=bn)


PLAIN = [name for name, entry in ALGORITHMS.items() if not entry.defaults]  # others are forms of these with updates
OWN = {"shallow": shallow, "narrow": narrow}  # models that are not of fedge


def toy(shape: tuple[int, ...] = (5, 5, 1), train: int = 90, test: int = 31, classes: int = 4) -> Dataset:
    """Draw random images whose labels are random too: enough to compare engines, too little to learn from."""
    rng = np.random.default_rng(7)
    draw = lambda n: (rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, classes, n))  # noqa: E731
    return Dataset.of(*draw(train), *draw(test), classes=classes, scale=((0.5,), (0.5,)))


def small(**keys: Any) -> Experiment:
    """Make an experiment on toy data, small unless said otherwise. Call it inside the precision it is meant for."""
    defaults = {"algorithm": "hierfavg", "clients": 7, "cells": 3, "local_steps": 3, "edge_rounds": 2, "batch": 4,
                "lr": 0.1, "partition": "dirichlet", "model": "mlp"}  # fmt: skip
    config = defaults | keys
    dataset = toy(SHAPES[config["model"]])
    if config["model"] in OWN:
        model = OWN[config["model"]](config.pop("bn", "avg_all"))
        return experiment(Config.of(config | {"data": "custom", "model": "custom"}), dataset, model)
    return experiment(Config.of(config | {"data": "custom"}), dataset)


def train(
    made: Experiment, rounds: int = 2, engine: str | None = None, machines: dict[str, Engine] | None = None
) -> tuple[Weights, list[float]]:
    """Return the evaluated model and losses after some rounds; `machines` keeps the engines for jobs of one shape."""
    name, machines = engine or made.config.engine, {} if machines is None else machines
    key = f"{name} {shape_of(made)}"
    if key not in machines:
        machines[key] = ENGINES[name](made.job)
    machine = machines[key]
    machine.retarget(made.job)
    state, losses = made.start, []
    for index in range(rounds):
        state, loss = machine.round(state, index)
        losses.append(loss)
    return made.evaluated(state), losses


def gradient_of(made: Experiment) -> Callable[[Weights, int, int], tuple[Weights, Weights]]:
    """Compile (weights, client, iteration) → the gradient on the client's minibatch, and the statistics after it."""
    task, key, data = made.job.task, made.job.key, jax.tree.map(jnp.asarray, made.job.data)

    @jax.jit
    def gradient(weights: Weights, i: Any, k: Any) -> Any:
        return task.gradient(weights, data, task.indices(key, data.of(i), i, k, 1)[0], key, i, k)[1:]

    return lambda weights, i, k: jax.tree.map(np.asarray, gradient(weights, np.int32(i), np.int32(k)))


def by_operator(made: Experiment, rounds: int = 2) -> Weights:
    """Follow W ← (W − ηG(W))·T_k over all clients, with the algorithm's matrices; then u = W·m. Plain SGD only.

    Only the gradient is compiled; steps and averages are numpy's.
    """
    algorithm, gradient = made.job.algorithm, gradient_of(made)
    topology, period = algorithm.topology, algorithm.schedule.period
    replicas = {path: np.stack([w] * topology.clients) for path, w in made.evaluated(made.start).items()}

    for k in range(1, rounds * period + 1):
        stepped = []
        for i in range(topology.clients):
            mine = {path: w[i] for path, w in replicas.items()}
            g, statistics = gradient(mine, i, k - 1)
            stepped.append({p: w - made.config.lr * g[p] if p in g else statistics[p] for p, w in mine.items()})
        for path in replicas:
            columns = np.stack([w[path] for w in stepped])
            replicas[path] = np.tensordot(algorithm.operator(k, path).T, columns, 1)
    return {path: np.tensordot(topology.weight, w, 1) for path, w in replicas.items()}


def distance(a: Weights, b: Weights) -> float:
    assert a.keys() == b.keys()
    return max(float(np.max(np.abs(np.asarray(a[path]) - np.asarray(b[path])))) for path in a)


def assert_mean_preserved(algorithm: Algorithm, path: str = "fc1/kernel") -> None:
    """Check that columns of each T_k sum to one and T_k·m = m, over two periods."""
    m = algorithm.topology.weight
    for k in range(1, 2 * algorithm.schedule.period + 1):
        operator = algorithm.operator(k, path)
        np.testing.assert_allclose(operator.sum(0), 1, atol=1e-12)
        np.testing.assert_allclose(operator @ m, m, atol=1e-12)


def until(true: Callable[[], bool], seconds: float = 240.0) -> None:
    """Wait for something that takes a moment, on a machine that is busy."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
