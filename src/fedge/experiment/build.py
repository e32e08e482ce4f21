"""Build a job from a configuration: its data, clients, cells, model and algorithm."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from fedge.algorithms import ALGORITHMS
from fedge.algorithms import algorithm as find_algorithm
from fedge.core import tree
from fedge.core.client import Data, Task, normalise
from fedge.core.contract import Algorithm, State
from fedge.core.keys import Purpose, fold, root
from fedge.core.memory import require_memory, state_memory
from fedge.core.objective import Objective
from fedge.core.sampling import SAMPLERS, participants
from fedge.core.schedule import Schedule
from fedge.core.split import Split
from fedge.core.topology import Topology
from fedge.cost.clock import Clock, Rates
from fedge.cost.cuts import Price, place_of, prices
from fedge.cost.ledger import Cut, Ledger
from fedge.cost.network import Network
from fedge.cost.network_clock import NetworkClock, Steps
from fedge.cost.work import multiply_adds
from fedge.data import Dataset, Partition, distribute
from fedge.engine import Job
from fedge.errors import ConfigError
from fedge.experiment.config import Config
from fedge.experiment.holding import holdings, limits_memory, require_memory_of
from fedge.experiment.network_file import read_network
from fedge.experiment.optimisers import Optimiser, build_optimiser, check_optimiser
from fedge.experiment.own import load_data, settle, shape_of_data
from fedge.experiment.target import Target, find_target
from fedge.experiment.tasks import check_model, find_objective, outputs_of, shape_of_samples
from fedge.experiment.weights_file import initial_weights
from fedge.models import Model, make
from fedge.models.own import function_of, make_own
from fedge.models.weights import Arrays
from fedge.plugins import call, is_name
from fedge.updates import UPDATES
from fedge.updates.memory import memory_bytes, remembering

# SD-FEEL's, 20 for its CNN; ResNet-8's is ResNet-18's by the share of multiply-adds, 12.5 of 555 million.
CYCLES_PER_BIT = {"resnet18": 10_230, "resnet8": 230}
MANY_EDGES = 700  # with so many a graph takes about a second, and with 2,000 ten, which is announced
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Experiment:
    config: Config
    dataset: Dataset
    partition: Partition
    topology: Topology  # cells and |S_i|/|S|, before the algorithm chooses its own weights
    model: Model
    job: Job
    clock: Clock | NetworkClock
    target: Target | None = None  # at which the run ends
    network: Network | None = None  # as measured, where one was
    init: Arrays | None = None  # weights to start from, where they are not drawn

    @property
    def start(self) -> State:
        """Return the state before round 0: one common draw of the initial model, or the weights that were given."""
        weights: Mapping[str, Any] = self.init or self.model.initialise(fold(self.job.key, Purpose.INIT))
        state = self.job.algorithm.start(tree.cast(weights, self.job.task.dtype))
        return jax.tree.map(jnp.asarray, state)  # a plain number too, as it will be after a round

    def evaluated(self, state: State) -> tree.Weights:
        """Return u, the model that is tested, with its running statistics in order."""
        cell_weight = jnp.asarray(self.job.algorithm.topology.cell_weight, self.job.task.dtype)
        weights = self.job.algorithm.evaluated(state, cell_weight)
        if not self._stale:
            return weights
        calibrated = self.calibrated({path: w[None] for path, w in weights.items()})
        return {path: w[0] for path, w in calibrated.items()}

    @property
    def sample_share(self) -> NDArray[np.float64]:
        """Return how much each training sample counts in the algorithm's objective Σ_i m_i F_i, with F_i the mean loss
        over client i's own samples S_i: the sum of m_i/|S_i| over the clients that own it."""
        each, size = self.job.algorithm.topology.weight / self.partition.size, self.partition.size
        return np.bincount(self.partition.order, np.repeat(each, size), len(self.dataset.y_train)).astype(np.float64)

    @property
    def _stale(self) -> bool:
        kept = self.model.statistics == "avg_all" and not self.job.algorithm.stale_statistics
        return self.model.has_statistics and self.model.statistics != "batch_stats" and not kept

    def calibrated(self, models: tree.Weights) -> tree.Weights:
        """Return these models, along a leading axis, with statistics estimated from training images where those that
        travelled do not serve."""
        if not self._stale:
            return models
        size = min(100, len(self.dataset.x_train))
        spread = np.linspace(0, len(self.dataset.x_train) - 1, 10 * size).astype(int).reshape(size, 10).T
        images = jnp.stack([self.job.task.inputs(self.job.data, jnp.asarray(b))[0] for b in spread])
        count = len(next(iter(models.values())))
        each = [self.model.calibrated({p: w[n] for p, w in models.items()}, images) for n in range(count)]
        return {path: jnp.stack([weights[path] for weights in each]) for path in each[0]}


def experiment(
    config: Config, dataset: Dataset | None = None, model: Model | None = None, optimiser: Optimiser | None = None,
    objective: Objective | None = None, owner: ArrayLike | None = None, cell: ArrayLike | None = None,
    init: Mapping[str, ArrayLike] | None = None,
) -> Experiment:  # fmt: skip
    """Build what a configuration names; objects passed in stand for what it calls custom. `owner` is the client of each
    training sample, `cell` the cell of each client, `init` the weights to start from."""
    dataset = dataset or load_data(config)
    objective = find_objective(config, dataset, objective)
    network = None if config.network is None else read_network(config.network)
    config, owner, cell = settle(config, dataset, owner, cell, network)
    partition = distribute(
        dataset.strata.label, clients=config.clients, cells=config.cells, partition=config.partition, seed=config.seed,
        classes=dataset.strata.kinds, how=config.assign, class_split=config.class_split,
        concentration=config.concentration, client_samples=config.client_samples, owner=owner, cell=cell,
    )  # fmt: skip
    topology = Topology.of(partition.cell, partition.size)
    model = model or make_model(config, dataset.shape, outputs_of(objective, config, dataset.classes))
    data = Data(
        x=dataset.x_train,
        y=dataset.y_train,
        order=partition.order,
        start=partition.start,
        size=partition.size,
    )
    trained = replace(model, compute=jnp.bfloat16) if config.compute == "bfloat16" else model
    task = Task(
        forward=trained,
        trainable=model.trainable,
        sampler=SAMPLERS[config.sampler],
        batch=config.batch,
        optimiser=build_optimiser(config) if optimiser is None else optimiser,
        scale=dataset.scale,
        dtype=jnp.dtype(config.dtype),
        objective=objective,
        windows=model.windows,
    )
    check_model(model, task, dataset)
    if config.declared.get("graph") is not None and config.cells > MANY_EDGES:
        log.info("making the graph between %s edges and its mixing matrix", f"{config.cells:,}")
    algorithm = make_algorithm(config, topology, model)
    if algorithm.messages and (on_client := algorithm.client_stages) is not None:
        at_edge = tuple(stage for stage in model.stages if stage not in on_client)
        task = replace(task, split=Split(trained, on_client, at_edge, model.stage_of, objective))
    job = Job(algorithm, task, data, root(config.seed), config.lr, config.participation, config.chunk, config.devices)
    weights = jax.eval_shape(lambda: tree.cast(model.initialise(job.key), task.dtype))
    if optimiser is not None:
        check_optimiser(optimiser, tree.split(weights, model.trainable.__contains__)[0], config.local_steps)
    state = jax.eval_shape(algorithm.start, weights)
    check_memory(algorithm, state, config.participation)
    ledger = Ledger(
        algorithm, state, job.key, model.trainable, config.participation,
        cut_of(algorithm.client_stages, weights, model, task, dataset),
    )  # fmt: skip
    work = work_of(ledger, weights, model, task, dataset)
    unbilled = frozenset(weights) - model.trainable if config.billed == "trainable" else frozenset()
    at = replace(rates(config, math.prod(dataset.shape), dataset.x_train.dtype.itemsize), unbilled=unbilled)
    clock = (
        Clock(ledger, at, config.seed, work) if network is None else network_clock(config, network, ledger, at, work)
    )
    if network is not None and limits_memory(network):
        found = holdings(algorithm, task, model, ledger, dataset, partition)
        what = f"{config.algorithm} with model={config.model} and batch={config.batch}"
        require_memory_of(network, found, what, has_edges=algorithm.has_edges)
    target = find_target(config, objective, edges_keep_models=algorithm.edges is not None)
    start_from = initial_weights(config, model, init)
    return Experiment(config, dataset, partition, topology, model, job, clock, target, network, start_from)


def make_algorithm(config: Config, topology: Topology, model: Model) -> Algorithm:
    """Make the configured algorithm, with all that its updates undergo."""
    entry = find_algorithm(config.algorithm)
    given, keys = (config, topology, model), config.of_own(entry.factory)
    known = config.algorithm in ALGORITHMS
    plain = entry.make(*given, **keys) if known else call(f"algorithm={config.algorithm}", entry.make, *given, **keys)
    if not isinstance(plain, Algorithm):
        raise ConfigError(f"algorithm={config.algorithm} returned {type(plain).__name__}; it must return an Algorithm")
    made = replace(plain, name=config.algorithm)
    for update in UPDATES:
        made = update(made, model, **config.of_own(update))
    correction = made.way.correction
    if correction is not None and (config.optimizer != "sgd" or config.momentum):
        raise ConfigError(
            f"correction={correction.name} learns from how far plain SGD moved; it needs optimizer=sgd and momentum=0"
        )
    return remembering(made, model)


def check_memory(algorithm: Algorithm, state: State, participation: float) -> None:
    """Say how much memory clients' rows and rules take, and refuse what cannot fit before it is allocated."""
    kept, way = memory_bytes(state), algorithm.way
    if kept:
        log.info("clients and edges remember %.3g MB (%s clients)", kept / 1e6, f"{algorithm.topology.clients:,}")
    if not way.collects:
        return
    active = sum(participants(len(own), participation) for own in algorithm.topology.roster)
    shapes = jax.eval_shape(algorithm.evaluated, state, jax.ShapeDtypeStruct((algorithm.topology.cells,), jnp.float32))
    one = sum(w.size * w.dtype.itemsize for w in shapes.values())
    why = "an edge that needs all its clients' models at once" if way.edge_rule else "clients that remember"
    require_memory(
        f"{why}: {algorithm.topology.clients:,} clients, {active:,} at a time, with {one / 1e6:.3g} MB each,",
        2 * kept + active * one, "take fewer clients, a smaller model or participation", state_memory(),
    )  # fmt: skip
    log.info("%s of %.3g MB each are held at once in an edge round", f"{active:,} clients' models", one / 1e6)


def cut_of(on_client: tuple[str, ...] | None, weights: Any, model: Model, task: Task, dataset: Dataset) -> Cut | None:
    """Return what crosses the cut after these stages; nothing where a client computes the whole model and its loss."""
    if on_client is None or on_client == model.stages:
        return None
    place = place_of(model, on_client, weights, dataset.x_train.dtype.itemsize)
    labels = 4 * task.batch * math.prod(dataset.y_train.shape[1:])
    up = task.batch * place.activations * place.bits // 8
    return Cut(up, up if place.gradients else 0, labels, place.client_work)


def cut_prices(config: Config) -> list[Price]:
    """Price every place to cut the configured model; this needs the shape of the data, not a known set itself."""
    shape, classes, width = shape_of_data(config)
    model = make_model(config, shape, classes)
    schedule = Schedule(config.local_steps, config.edge_rounds)
    return prices(model, config.batch, schedule, rates(config, math.prod(shape), width), width)


def work_of(ledger: Ledger, weights: Any, model: Model, task: Task, dataset: Dataset) -> NDArray[Any]:
    """Divide each cell's multiply-adds by those of the whole model; a part that cannot run is refused here."""
    stored = shape_of_samples(dataset.x_train, 1)
    sample = jax.eval_shape(lambda x: normalise(x, task.scale, task.dtype), stored)

    def forward(weights: tree.Weights, x: Array) -> Array:
        return model(weights, x, train=True, key=root(0))[0]

    share = np.ones(ledger.algorithm.topology.cells)
    for stack in ledger.stacks:
        if all(stack.shapes[path].shape == w.shape for path, w in weights.items()):
            continue
        try:
            part = multiply_adds(forward, stack.shapes, sample)
        except (TypeError, ValueError) as problem:
            reason = (str(problem).splitlines() or [""])[0]
            raise ConfigError(f"model {model.name} cannot run with a part of its units: {reason[:200]}") from None
        share[list(stack.ids)] = part / multiply_adds(forward, weights, sample)
    return share


def rates(config: Config, inputs: int, width: int) -> Rates:
    """Return the deployment that simulated seconds are reckoned for; a sample has so many inputs of so many bytes."""
    return Rates(
        step_seconds=cycles_of(config) * config.batch * inputs * width * 8 / config.cpu_hz,
        edge_speed=config.edge_hz / config.cpu_hz,
        uplink_bps=config.uplink_bps,
        edge_bps=config.edge_bps,
        cloud_bps=config.cloud_bps,
        device_spread=config.device_spread,
        link_spread=config.link_spread,
        straggle=config.straggle,
        downlink=config.downlink,
    )


def network_clock(config: Config, network: Network, ledger: Ledger, at: Rates, work: NDArray[Any]) -> NetworkClock:
    """Return the clock of a network as measured; a processor whose seconds are not known has its cycles counted."""
    cycles = cycles_of(config)
    bits = at.step_seconds * config.cpu_hz / cycles
    at_edge = np.zeros(len(network.edges)) if ledger.cut is None else network.edge_step_seconds(bits, cycles)
    return NetworkClock(
        ledger, network, Steps(network.step_seconds(bits, cycles), at_edge), config.straggle, config.downlink,
        at.unbilled, config.seed, work,
    )  # fmt: skip


def cycles_of(config: Config) -> float:
    return config.cycles_per_bit or CYCLES_PER_BIT.get(config.model, 20)


def make_model(config: Config, shape: tuple[int, ...], classes: int) -> Model:
    if is_name(config.model):
        return make_own(config.model, shape, classes, **config.of_own(function_of(config.model)))
    options: dict[str, dict[str, Any]] = {
        "mlp": {"dropout": config.dropout},
        "cnn": {"dropout": config.dropout},
        "resnet8": {"bn": config.bn},
        "resnet18": {"bn": config.bn},
    }
    return make(config.model, shape, classes, **options[config.model])
