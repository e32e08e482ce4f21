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
from fedge.engine import Stacked
from fedge.runner.config import Config
from fedge.runner.examine import Examiner
from fedge.runner.loop import ready, run, until
from fedge.runner.price import Price, price
from fedge.runner.record import Row
from fedge.runner.setup import Experiment, experiment
from fedge.runner.workshop import Workshop, shape_of

log = logging.getLogger(__name__)
ROOM = 2**30  # bytes of clients' models side by side; a run that needs much of it fills a GPU alone


@dataclass(frozen=True, eq=False)
class Crowd:
    """Runs of one shape; `places` are theirs in the list that was asked for."""

    places: list[int]
    runs: list[Experiment]
    plan: list[list[Price]]

    def train(self, workshop: Workshop) -> list[list[Row]]:
        engine, examine = self.engine(workshop), Examiner(self.runs, workshop)
        engine.retarget([made.job for made in self.runs])
        states, config, rounds = self.start(engine), self.runs[0].config, len(self.plan[0])
        histories: list[list[Row]] = [[] for _ in self.runs]
        done = 0
        while done < rounds:
            end = until(done, rounds, config.eval_every, 0)
            states, losses = engine.rounds(states, done, end - done)
            done = end
            for history, plan, row in zip(histories, self.plan, examine(states, done, losses.tolist()), strict=True):
                history.append(row | {"bytes": plan[done - 1].sent, "simulated_seconds": plan[done - 1].seconds})
        return histories

    def engine(self, workshop: Workshop) -> Stacked:
        return workshop.together(self.runs)

    def start(self, engine: Stacked) -> State:
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
    """Runs of one shape, as many in each as there is room for; a run that has no company, or covers only a part of the
    training images, is left out."""
    found: dict[str, list[tuple[int, Experiment, list[Price]]]] = {}
    for place, config in enumerate(configs):
        made = experiment(config, dataset)
        plan = price(made)
        if not config.train_eval or len(np.unique(made.partition.order)) == len(dataset.x_train):
            alike = f"{shape_of(made)} {len(plan)} {config.eval_every} {config.train_eval}"
            found.setdefault(alike, []).append((place, made, plan))
    for members in found.values():
        made = members[0][1]
        size = made.config.clients * made.model.parameters * jnp.dtype(made.config.dtype).itemsize
        most = ROOM // size
        while most > 1 and len(members) > 1:
            now, members = members[:most], members[most:]
            yield Crowd([n for n, _, _ in now], [made for _, made, _ in now], [plan for _, _, plan in now])


def _compile(crowds: list[Crowd], workshop: Workshop) -> None:
    """Every program that the crowds need, side by side: compiling keeps one core busy, and a GPU idle."""
    first: dict[int, tuple[Crowd, Any]] = {}
    for crowd in crowds:
        engine = crowd.engine(workshop)
        if id(engine) not in first:
            engine.retarget([made.job for made in crowd.runs])
            first[id(engine)] = crowd, engine

    def prepare(pair: tuple[Crowd, Stacked]) -> None:
        pair[1].compile(pair[0].start(pair[1]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(prepare, first.values()))
