"""From a configuration to a job: data, clients, cells, model, algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from fedge.algorithms import ALGORITHMS
from fedge.core import tree
from fedge.core.client import Data, Task, normalise
from fedge.core.contract import State
from fedge.core.keys import Purpose, fold, root
from fedge.core.sampling import SAMPLERS
from fedge.core.topology import Topology
from fedge.cost.clock import Clock, Rates
from fedge.cost.ledger import Ledger
from fedge.data import Dataset, Partition, distribute, load
from fedge.engine import Job
from fedge.errors import ConfigError
from fedge.models import Model, make
from fedge.runner.config import Config

Optimiser = Callable[[Array], optax.GradientTransformation]


@dataclass(frozen=True, eq=False)
class Experiment:
    config: Config
    dataset: Dataset
    partition: Partition
    topology: Topology  # cells and |S_i|/|S|, before the algorithm chooses its own weights
    model: Model
    job: Job
    clock: Clock

    @property
    def start(self) -> State:
        """The state before round 0: one common draw of the initial model."""
        weights = self.model.initialise(fold(self.job.key, Purpose.INIT))
        return self.job.algorithm.start(tree.cast(weights, self.job.task.dtype))

    def evaluated(self, state: State) -> tree.Weights:
        """u, the model that is tested, with its running statistics in order."""
        cell_weight = jnp.asarray(self.job.algorithm.topology.cell_weight, self.job.task.dtype)
        weights = self.job.algorithm.evaluated(state, cell_weight)
        if self.model.statistics != "local":
            return weights
        size = min(100, len(self.dataset.x_train))
        spread = np.linspace(0, len(self.dataset.x_train) - 1, 10 * size).astype(int).reshape(size, 10).T
        return self.model.calibrated(
            weights, jnp.stack([self.job.task.inputs(self.job.data, jnp.asarray(b))[0] for b in spread])
        )


def experiment(
    config: Config, dataset: Dataset | None = None, model: Model | None = None, optimiser: Optimiser | None = None
) -> Experiment:
    dataset = dataset or load(config.data)
    partition = distribute(
        dataset.y_train, clients=config.clients, cells=config.cells, partition=config.partition, seed=config.seed,
        classes=dataset.classes, how=config.assign, class_split=config.class_split,
        concentration=config.concentration,
    )  # fmt: skip
    size = np.array([len(s) for s in partition.samples], np.int32)
    topology = Topology.of(partition.cell, size)
    model = model or build_model(config, dataset)
    data = Data(
        x=jnp.asarray(dataset.x_train),
        y=jnp.asarray(dataset.y_train),
        order=jnp.asarray(np.concatenate(partition.samples), jnp.int32),
        start=jnp.asarray(np.cumsum([0, *size[:-1]]), jnp.int32),
        size=jnp.asarray(size),
    )
    task = Task(
        forward=model,
        trainable=model.trainable,
        sampler=SAMPLERS[config.sampler],
        batch=config.batch,
        optimiser=optimiser or build_optimiser(config),
        scale=dataset.scale,
        dtype=jnp.dtype(config.dtype),
    )
    check_model(model, task, dataset)
    algorithm = ALGORITHMS[config.algorithm].factory(config, topology, model)
    job = Job(algorithm, task, data, root(config.seed), config.lr, config.participation, config.chunk, config.devices)
    weights = jax.eval_shape(lambda: tree.cast(model.initialise(job.key), task.dtype))
    ledger = Ledger(algorithm, jax.eval_shape(algorithm.start, weights), job.key, config.participation)
    clock = Clock(ledger, rates(config, dataset), config.seed)
    return Experiment(config, dataset, partition, topology, model, job, clock)


def check_model(model: Model, task: Task, dataset: Dataset) -> None:
    """One pass over shapes: the model must take these inputs and have an output for each class."""

    def logits(x: Array) -> Array:
        weights = tree.cast(model.initialise(root(0)), task.dtype)
        return model(weights, normalise(x, task.scale, task.dtype), train=True, key=root(0))[0]

    try:
        found = jax.eval_shape(logits, jax.ShapeDtypeStruct((2, *dataset.shape), dataset.x_train.dtype)).shape
    except (TypeError, ValueError) as problem:
        reason = (str(problem).splitlines() or [""])[0]
        raise ConfigError(f"model {model.name} cannot take inputs of shape {dataset.shape}: {reason[:200]}") from None
    if len(found) != 2 or found[1] < dataset.classes:
        raise ConfigError(
            f"model {model.name} gives {found[1:]} for each input, but there are {dataset.classes} classes"
        )


def rates(config: Config, dataset: Dataset) -> Rates:
    """The deployment that simulated seconds are reckoned for."""
    sample = dataset.x_train[0]
    cycles = config.cycles_per_bit or (10_230 if config.model == "resnet18" else 20)
    return Rates(
        step_seconds=cycles * config.batch * sample.size * sample.itemsize * 8 / config.cpu_hz,
        uplink_bps=config.uplink_bps,
        edge_bps=config.edge_bps,
        cloud_bps=config.cloud_bps,
        device_spread=config.device_spread,
        link_spread=config.link_spread,
        straggle=config.straggle,
        downlink=config.downlink,
    )


def build_model(config: Config, dataset: Dataset) -> Model:
    options: dict[str, dict[str, Any]] = {
        "mlp": {"dropout": config.dropout},
        "cnn": {"dropout": config.dropout},
        "resnet18": {"bn": config.bn},
    }
    return make(config.model, dataset.shape, dataset.classes, **options[config.model])


def build_optimiser(config: Config) -> Optimiser:
    """Client optimisers come from optax; the learning rate stays a traced value, so a sweep compiles once."""
    decay = config.weight_decay

    def optimiser(lr: Array) -> optax.GradientTransformation:
        match config.optimizer:
            case "sgd":
                step = optax.sgd(lr, momentum=config.momentum or None)
                return optax.chain(optax.add_decayed_weights(decay), step) if decay else step
            case "adamw":
                return optax.adamw(lr, weight_decay=decay)
            case name:
                step = {"adam": optax.adam, "rmsprop": optax.rmsprop, "adagrad": optax.adagrad}[name](lr)
                return optax.chain(optax.add_decayed_weights(decay), step) if decay else step

    return optimiser
