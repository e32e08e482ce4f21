"""Make several runs at once: small runs of one shape advance together on an accelerator; programs compile in parallel.

A seed of the papers' small models leaves a GPU idle most of the time, and testing its models from the host costs more
than training them. Runs that differ in what is not compiled in (seed, learning rate, partition) become one program.
Nothing of them is written down but the rows that come back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import JaxRuntimeError

from fedge.core.contract import State
from fedge.data import Dataset
from fedge.engine import Stacked
from fedge.experiment.build import Experiment, experiment
from fedge.experiment.config import Config
from fedge.runner.cache import ProgramCache, shape_of
from fedge.runner.costs import Costs
from fedge.runner.loop import Alone, Trainer, stretches
from fedge.runner.metrics import Metrics
from fedge.runner.prepare import ready
from fedge.runner.rows import Row

log = logging.getLogger(__name__)
ROOM = 2**30  # bytes of clients' models side by side; a run that needs much of it fills a GPU alone


@dataclass(frozen=True, eq=False)
class SideBySide:
    """This trains runs of one shape on one engine, for the loop."""

    engine: Stacked

    def rounds(self, states: State, first: int, count: int) -> tuple[State, Sequence[float]]:
        states, losses = self.engine.rounds(states, first, count)
        return states, losses.tolist()

    def stacked(self, states: State) -> State:
        return states


@dataclass(frozen=True, eq=False)
class StackedRuns:
    """These runs have one shape; `places` are theirs in the list that was asked for."""

    places: list[int]
    runs: list[Experiment]
    costs: list[Costs]

    def train(self, cache: ProgramCache) -> list[list[Row]]:
        engine = self.engine(cache)
        engine.retarget([made.job for made in self.runs])
        return _rows(SideBySide(engine), self.start(engine), self.runs, self.costs, cache)

    def engine(self, cache: ProgramCache) -> Stacked:
        return cache.stacked(self.runs)

    def start(self, engine: Stacked) -> State:
        return engine.start([made.start for made in self.runs])


def histories(configs: Sequence[Config], dataset: Dataset, cache: ProgramCache) -> Iterator[tuple[int, list[Row]]]:
    """Yield the rows of each run, with its place in the list, in whatever order they finish."""
    left = set(range(len(configs)))
    with ready(configs[0], configs[0].devices):
        stacks = list(_stacks(configs, dataset)) if _worth_while(configs) else []
        try:
            _compile(stacks, cache)
            for stack in stacks:
                yield from zip(stack.places, stack.train(cache), strict=True)
                left -= set(stack.places)
        except JaxRuntimeError as problem:
            if not str(problem).startswith("RESOURCE_EXHAUSTED"):
                raise
            log.warning("runs that were to advance together did not fit into memory; going on one by one")
    for place in sorted(left):
        with ready(configs[place], configs[place].devices):
            made = experiment(configs[place], dataset)
            trainer = Alone(cache.engine(made))
            yield place, _rows(trainer, made.start, [made], [Costs(made)], cache)[0]


def _rows(
    trainer: Trainer, states: State, runs: list[Experiment], costs: list[Costs], cache: ProgramCache
) -> list[list[Row]]:
    """Train to the end, also where a run diverges, since its rows belong beside those of the others."""
    found: list[list[Row]] = [[] for _ in runs]
    target = runs[0].target  # runs that advance together have none
    for stretch in stretches(trainer, Metrics(runs, cache), costs, states, 0, runs[0].config, target=target):
        for history, row in zip(found, stretch.rows, strict=True):
            history.append(row)
            if row["loss"] is None and (len(history) == 1 or history[-2]["loss"] is not None):
                log.warning("round %d: training has diverged, its loss is not a finite number", row["round"])
    return found


def _worth_while(configs: Sequence[Config]) -> bool:
    """Say whether stacking pays: it does on one accelerator of one process; a CPU core is busy with one run."""
    alone = jax.process_count() == 1 and len(jax.devices()) == 1 and jax.default_backend() != "cpu"
    return alone and all(c.engine == "vectorised" and c.dtype == "float32" and not c.chunk for c in configs)


def _stacks(configs: Sequence[Config], dataset: Dataset) -> Iterator[StackedRuns]:
    """Stack runs of one shape, as many as there is room for. A run is left out if it has no company, if it covers only
    a part of the training images, or if nobody knows yet at which round it ends."""
    found: dict[str, list[tuple[int, Experiment, Costs]]] = {}
    for place, config in enumerate(configs):
        made = experiment(config, dataset)
        costs = Costs(made)
        tests_training = config.train_eval or config.metrics
        whole = not tests_training or len(np.unique(made.partition.order)) == len(dataset.x_train)
        if costs.rounds is not None and made.target is None and whole:
            alike = f"{shape_of(made)} {costs.rounds} {config.eval_every} {config.train_eval} {config.metrics}"
            found.setdefault(alike, []).append((place, made, costs))
    for members in found.values():
        made = members[0][1]
        size = made.config.clients * made.model.parameters * jnp.dtype(made.config.dtype).itemsize
        most = ROOM // size
        while most > 1 and len(members) > 1:
            now, members = members[:most], members[most:]
            yield StackedRuns([n for n, _, _ in now], [made for _, made, _ in now], [costs for _, _, costs in now])


def _compile(stacks: list[StackedRuns], cache: ProgramCache) -> None:
    """Compile every program that the stacks need, side by side: compiling keeps one core busy, and a GPU idle."""
    first: dict[int, tuple[StackedRuns, Any]] = {}
    for stack in stacks:
        engine = stack.engine(cache)
        if id(engine) not in first:
            engine.retarget([made.job for made in stack.runs])
            first[id(engine)] = stack, engine

    def prepare(pair: tuple[StackedRuns, Stacked]) -> None:
        pair[1].compile(pair[0].start(pair[1]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(prepare, first.values()))
