"""Runs of one data set and one model share what is here: compiled programs, and images on the devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedge.core.contract import State
from fedge.core.tree import Weights
from fedge.data.own_data import is_own
from fedge.engine import ENGINES, Engine, Stacked
from fedge.engine.evaluate import Evaluator, Shares
from fedge.experiment.build import Experiment
from fedge.experiment.checks import CUSTOM
from fedge.models import own as own_models

Views = Callable[[State, Any], tuple[Weights, Weights | None]]

PER_RUN = {  # keys that do not shape a compiled program
    "seed", "lr", "init", "partition", "class_split", "concentration", "client_samples", "assign", "rounds",
    "cycles_per_bit", "cpu_hz", "edge_hz", "uplink_bps", "edge_bps", "cloud_bps", "device_spread", "link_spread",
    "straggle", "downlink", "budget_seconds", "budget_bytes", "target", "target_metric", "target_mean", "train_eval",
    "metrics", "eval_every", "checkpoint_every", "devices", "chunk",
}  # fmt: skip


class Trained(NamedTuple):
    """This tests on samples that clients hold."""

    evaluator: Evaluator
    shares: Shares  # how much each counts in the runs' objectives
    samples: NDArray[np.intp]  # their places in the training set


class ProgramCache:
    """With this, a sweep over seeds, rates or partitions on one data set and one model compiles once.

    `engines` is how many shapes' programs and data are kept; all, unless given.
    """

    def __init__(self, engines: int | None = None) -> None:
        self._most = engines
        self._engines: dict[str, Engine] = {}
        self._stacked: dict[str, Stacked] = {}
        self._views: dict[str, Views] = {}
        self._evaluators: dict[str, Evaluator] = {}

    def fit(self, made: Experiment) -> Experiment:
        """Return an experiment as its engine makes it."""
        return made

    def engine(self, made: Experiment) -> Engine:
        if _custom(made):
            return ENGINES[made.config.engine](made.job)
        key = shape_of(made)
        if key in self._engines:
            self._engines[key] = self._engines.pop(key)  # the latest goes last
            self._engines[key].retarget(made.job)
        else:
            self._engines[key] = ENGINES[made.config.engine](made.job)
        if self._most is not None and len(self._engines) > self._most:
            del self._engines[next(iter(self._engines))]
        return self._engines[key]

    def stacked(self, runs: Sequence[Experiment]) -> Stacked:
        """Return the engine for these runs of one shape (see `shape_of`)."""
        key = f"{len(runs)} {shape_of(runs[0])}"
        if key not in self._stacked:
            self._stacked[key] = Stacked([made.job for made in runs])
        return self._stacked[key]

    def views(self, made: Experiment) -> Views:
        """Compile (states along a leading axis, m̃ of each run) → what is tested: u, and the edges' own models."""
        key = shape_of(made)
        if _custom(made) or key not in self._views:
            algorithm = made.job.algorithm

            def view(state: State, cell_weight: Array) -> tuple[Weights, Weights | None]:
                return algorithm.evaluated(state, cell_weight), algorithm.edges(state) if algorithm.edges else None

            self._views[key] = jax.jit(jax.vmap(view))
        return self._views[key]

    def test(self, made: Experiment) -> Evaluator:
        return self._evaluator("test", made, made.dataset.x_test, made.dataset.y_test)

    def train(self, runs: Sequence[Experiment]) -> Trained:
        """Return what tests on every sample that some client holds; several runs must hold the same samples."""
        made, share = runs[0], np.stack([made.sample_share for made in runs])
        data, used = made.dataset, np.flatnonzero(share[0])
        if len(used) < len(data.x_train):
            found, share = _evaluator(made, data.x_train[used], data.y_train[used]), share[:, used]
        else:
            found = self._evaluator("train", made, data.x_train, data.y_train)
        return Trained(found, found.shares(share), used)

    def _evaluator(self, images: str, made: Experiment, x: Any, y: Any) -> Evaluator:
        if _custom(made):
            return _evaluator(made, x, y)
        shaping = {"model", "bn", "dropout", "dtype", "task", *own_models.keys_of(made.config.model)}
        key = images + made.config.model_dump_json(include=shaping) + str(made.job.devices)
        if key not in self._evaluators:
            self._evaluators[key] = _evaluator(made, x, y)
        return self._evaluators[key]


def shape_of(made: Experiment) -> str:
    """Say in what runs must agree to share compiled programs."""
    sizes = [len(own) for own in made.job.algorithm.topology.roster]
    gossip = made.job.algorithm.gossip
    negative = gossip is not None and bool(gossip.mixing.min() < 0)  # SD-FEEL then averages variances
    constants = [np.shape(x) for x in jax.tree.leaves(made.job.algorithm.constants)]  # a drawn graph's neighbours, say
    return made.config.model_dump_json(exclude=PER_RUN) + str(
        (sizes, len(made.job.data.order), negative, constants, made.job.devices, made.job.chunk)
    )


def _custom(made: Experiment) -> bool:
    """Say whether objects were passed in, which all have one name, or data are the user's own, which may change with
    the seed: nothing made for one may serve another."""
    config = made.config
    return CUSTOM in (config.data, config.model, config.optimizer, config.task) or is_own(config.data)


def _evaluator(made: Experiment, x: Any, y: Any) -> Evaluator:
    scale, together = made.dataset.scale, made.model.evaluates_batches
    task = made.job.task
    return Evaluator(made.model, task.objective, x, y, scale, task.dtype, made.job.devices, together)
