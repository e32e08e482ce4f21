"""The loop trains a stretch of rounds, tests the model and says what came of it.

The same loop advances one run or several of one shape; what is done with a stretch (written down, saved, drawn) is up
to whoever iterates over it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np

from fedge.core.contract import State
from fedge.engine import Engine
from fedge.engine.mesh import here
from fedge.experiment.config import Config
from fedge.experiment.target import Target
from fedge.runner.costs import Costs
from fedge.runner.per_group import without_long
from fedge.runner.rows import Row

PAUSE = 1.0  # seconds after which a loop that may be asked to stop looks whether it was


class Trainer(Protocol):
    """A trainer is what the loop advances."""

    def rounds(self, states: State, first: int, count: int) -> tuple[State, Sequence[float]]:
        """Train global rounds `first`, …, and return the states and each run's loss in the last of them."""
        ...

    def stacked(self, states: State) -> State:
        """Return the states of all runs along a leading axis, as arrays of this process."""
        ...


class Alone:
    """This trains one run on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def rounds(self, states: State, first: int, count: int) -> tuple[State, Sequence[float]]:
        state, loss = self._engine.rounds(states, first, count)
        return state, [loss]

    def stacked(self, states: State) -> State:
        return jax.tree.map(lambda x: x[None], here(states))


class Stretch(NamedTuple):
    """A stretch is some rounds trained in one go."""

    done: int  # rounds from the start of the run
    states: State
    losses: Sequence[float]  # training loss of each run in the last round
    rows: list[Row]  # of each run; empty where it was not time to test
    seconds: float  # of training


def stretches(
    trainer: Trainer, evaluate: Callable[[State, int, Sequence[float]], list[Row]], costs: Sequence[Costs],
    states: State, done: int, config: Config, *, save_every: int = 0, pausing: bool = False,
    target: Target | None = None, history: Sequence[Row] = (),
) -> Iterator[Stretch]:  # fmt: skip
    """Train until the rounds or the budget are used up, or until one run is at its target.

    A stretch ends where it is time to test or to save. With `pausing` it lasts about a second at most, or one round.
    `history` holds the rows so far of a run that has a target.
    """
    pace, latest = 0.0, list(history)
    while costs[0].more(done) and not (target and target.is_met(latest)):
        end = costs[0].until(done, config.eval_every, save_every)
        if pausing:
            end = min(end, done + max(1, int(PAUSE / pace) if pace else 1))
        began = time.perf_counter()
        states, losses = trainer.rounds(states, done, end - done)
        seconds = time.perf_counter() - began
        pace, done = seconds / (end - done), end
        rows: list[Row] = []
        if done % config.eval_every == 0 or not costs[0].more(done):
            for own, tested in zip(costs, evaluate(trainer.stacked(states), done, losses), strict=True):
                spent = own.after(done)
                rows.append(tested | {"bytes": spent.sent, "simulated_seconds": spent.seconds})
            latest.append(rows[0])
            if costs[0].more(done) and not (target and target.is_met(latest)):
                rows = [without_long(row) for row in rows]
        yield Stretch(done, states, losses, rows, seconds)


def is_finite(state: State) -> bool:
    """Say whether every number of a state is finite."""
    return all(
        bool(np.isfinite(np.asarray(x)).all())
        for x in jax.tree.leaves(here(state))
        if np.issubdtype(x.dtype, np.inexact)
    )
