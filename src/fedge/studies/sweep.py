"""Several runs at once: on an accelerator, small runs of one shape advance together; programs compile side by side.

A seed of the papers' small models leaves a GPU idle most of the time, and testing its models from the host costs more
than training them. Runs that differ in what is not compiled in (seed, learning rate, partition) become one program.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import JaxRuntimeError

from fedge.core.contract import State
from fedge.data import Dataset
from fedge.engine import Together
from fedge.experiment.build import Experiment, experiment
from fedge.experiment.config import Config
from fedge.runner.cache import Workshop, shape_of
from fedge.runner.costs import Costs
from fedge.runner.loop import ready, run
from fedge.runner.metrics import Examiner
from fedge.runner.record import Row

log = logging.getLogger(__name__)
ROOM = 2**30  # bytes of clients' models side by side; a run that needs much of it fills a GPU alone


@dataclass(frozen=True, eq=False)
class Crowd:
    """Runs of one shape; `places` are theirs in the list that was asked for."""

    places: list[int]
    runs: list[Experiment]
    costs: list[Costs]

    def train(self, workshop: Workshop) -> list[list[Row]]:
        engine, examine = self.engine(workshop), Examiner(self.runs, workshop)
        engine.retarget([made.job for made in self.runs])
        states, config = self.start(engine), self.runs[0].config
        histories: list[list[Row]] = [[] for _ in self.runs]
        done = 0
        while self.costs[0].more(done):
            end = self.costs[0].until(done, config.eval_every)
            states, losses = engine.rounds(states, done, end - done)
            done = end
            for history, costs, row in zip(histories, self.costs, examine(states, done, losses.tolist()), strict=True):
                spent = costs.after(done)
                history.append(row | {"bytes": spent.sent, "simulated_seconds": spent.seconds})
        return histories

    def engine(self, workshop: Workshop) -> Together:
        return workshop.together(self.runs)

    def start(self, engine: Together) -> State:
        return engine.start([made.start for made in self.runs])


def histories(configs: Sequence[Config], dataset: Dataset, workshop: Workshop) -> Iterator[tuple[int, list[Row]]]:
    """The rows of each run, with its place in the list, in whatever order they finish."""
    left = set(range(len(configs)))
    with ready(configs[0]):
        crowds = list(_crowds(configs, dataset)) if _worth_while(configs) else []
        try:
            _compile(crowds, workshop)
            for crowd in crowds:
                yield from zip(crowd.places, crowd.train(workshop), strict=True)
                left -= set(crowd.places)
        except JaxRuntimeError as problem:
            if not str(problem).startswith("RESOURCE_EXHAUSTED"):
                raise
            log.warning("runs that were to advance together did not fit into memory; going on one by one")
    for place in sorted(left):
        with tempfile.TemporaryDirectory(prefix="fedge-") as folder:
            done = run(configs[place], out=Path(folder) / "run", dataset=dataset, workshop=workshop)
        yield place, done.history


def _worth_while(configs: Sequence[Config]) -> bool:
    """On one accelerator of one process; a CPU core is busy with one run."""
    alone = jax.process_count() == 1 and len(jax.devices()) == 1 and jax.default_backend() != "cpu"
    return alone and all(c.engine == "vectorised" and c.dtype == "float32" and not c.chunk for c in configs)


def _crowds(configs: Sequence[Config], dataset: Dataset) -> Iterator[Crowd]:
    """Runs of one shape, as many in each as there is room for; a run that has no company, covers only a part of the
    training images or ends at a round nobody knows yet is left out."""
    found: dict[str, list[tuple[int, Experiment, Costs]]] = {}
    for place, config in enumerate(configs):
        made = experiment(config, dataset)
        costs = Costs(made)
        whole = not config.train_eval or len(np.unique(made.partition.order)) == len(dataset.x_train)
        if costs.rounds is not None and whole:
            alike = f"{shape_of(made)} {costs.rounds} {config.eval_every} {config.train_eval}"
            found.setdefault(alike, []).append((place, made, costs))
    for members in found.values():
        made = members[0][1]
        size = made.config.clients * made.model.parameters * jnp.dtype(made.config.dtype).itemsize
        most = ROOM // size
        while most > 1 and len(members) > 1:
            now, members = members[:most], members[most:]
            yield Crowd([n for n, _, _ in now], [made for _, made, _ in now], [costs for _, _, costs in now])


def _compile(crowds: list[Crowd], workshop: Workshop) -> None:
    """Every program that the crowds need, side by side: compiling keeps one core busy, and a GPU idle."""
    first: dict[int, tuple[Crowd, Any]] = {}
    for crowd in crowds:
        engine = crowd.engine(workshop)
        if id(engine) not in first:
            engine.retarget([made.job for made in crowd.runs])
            first[id(engine)] = crowd, engine

    def prepare(pair: tuple[Crowd, Together]) -> None:
        pair[1].compiled(pair[0].start(pair[1]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(prepare, first.values()))
