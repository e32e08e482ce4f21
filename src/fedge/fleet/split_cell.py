"""An edge of a split model holds the upper half, which it steps at every iteration with what crosses the cut.

MEAN        one half, stepped by the clients' mean gradient
COPIES      a half for each client, averaged after every step
SEQUENTIAL  one half, stepped by one client after the other, in the order in which they were drawn

Each client gets the gradient at the cut as soon as it is found. Who is lost in the middle of its steps does not count
from then on, nor does what its half has become.
"""

from __future__ import annotations

import time
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedge.core.contract import Sharing
from fedge.core.tree import Weights
from fedge.fleet.cell import Acceptance, Cell, Trained, Turn
from fedge.fleet.client import START, UPDATE
from fedge.fleet.entries import Keeping
from fedge.fleet.split import ACTIVATIONS, AT_CUT, GRADIENT, Cutting
from fedge.fleet.work import Numbers, Work
from fedge.net.gather import Asks, Patience, gather
from fedge.net.hub import Hub
from fedge.net.link import Link
from fedge.net.names import Name, client
from fedge.net.tally import LABELS
from fedge.net.wire import Message


class SplitCell(Cell):
    """This makes a cell's edge rounds in lockstep."""

    def __init__(self, work: Work, hub: Hub, cell: int, patience: Patience, kept: Keeping | None = None) -> None:
        super().__init__(work, hub, cell, patience, kept)
        self.cut = Cutting(work, cell)

    def edge_round(self, model: Numbers, turn: Turn, patience: Patience) -> Trained:
        try:
            return self._steps(model, turn, patience, time.monotonic() + patience.deadline)
        finally:  # what came of a round that failed is not of the next try
            self.hub.forget(lambda place: (place.round, place.edge_round) == (turn.number, turn.edge_round))

    def _steps(self, model: Numbers, turn: Turn, patience: Patience, end: float) -> Trained:
        """Make an edge round; all of its steps have the time until its end."""
        work, steps = self.work, self.work.schedule.local_steps
        clients = work.participants(self.cell, turn.number * work.schedule.edge_rounds + turn.edge_round)
        start, tensors = self.handed(model, turn)
        half = {path: w for path, w in start.items() if work.at_client(path)}
        upper = Upper(self.cut, {p: jnp.asarray(w) for p, w in start.items() if not work.at_client(p)})
        self._await(turn, clients)
        asks: Asks = {
            client(i): Message(START, self.hub.me, client(i), turn.number, turn.edge_round, 0, turn.attempt, tensors)
            for i in clients
        }
        present, loss, over = clients, 0.0, dict[Name, Link | None]()
        for step in range(steps):
            left = patience.until(end)
            asked = asks if step == 0 else {}
            present = self._exchange(turn, step, present, asked, upper, left, len(clients), over)
            loss += upper.step(present, self.shares(present)) / steps
        accept = Acceptance({}, ("seconds",))
        places = {client(i): turn.place(i, steps) for i in present}
        ended = gather(self.hub, places, {}, patience.until(end), len(clients), accept, over=over)
        came = self.required(turn, present, len(clients), ended, patience, accept.not_finite)
        models = [half | self.arrived(half, ended.answers[client(i)]) for i in came]
        folded = self.folded(half, self.shares(came), models)
        seconds = max(float(ended.answers[client(i)].facts["seconds"]) for i in came)
        return Trained(folded | {path: np.asarray(w) for path, w in upper.weights.items()}, loss, seconds)

    def _await(self, turn: Turn, clients: list[int]) -> None:
        """Let all messages of an edge round come: a client need not wait for the others to go on."""
        steps, update = self.work.schedule.local_steps, self.work.form(self.cell, self.work.way.uplink, client=True)
        self.hub.expect({turn.place(i, step): {ACTIVATIONS: self.cut.activations_form}
                         for i in clients for step in range(steps)})  # fmt: skip
        self.hub.expect({turn.place(i, steps): {UPDATE: update} for i in clients})

    def _exchange(
        self, turn: Turn, step: int, present: list[int], asks: Asks, upper: Upper, patience: Patience,
        asked: int, over: dict[Name, Link | None],
    ) -> list[int]:  # fmt: skip
        """Take activations and give gradients; return the clients that are still there."""
        accept = Acceptance({}, ())

        def answer(name: Name, message: Message) -> None:
            at_cut = upper.answer(name.number, message, turn.first + step)
            tensors = {AT_CUT: np.asarray(at_cut)} if self.cut.split.client else {}
            if (link := self.hub.link(name)) is not None:
                link.send(
                    Message(GRADIENT, self.hub.me, name, turn.number, turn.edge_round, step, turn.attempt, tensors)
                )

        def take(name: Name, message: Message) -> str | None:
            problem = accept(name, message)
            if problem is None and not upper.in_order:
                answer(name, message)
            return problem

        places = {client(i): turn.place(i, step) for i in present}
        found = gather(self.hub, places, asks, patience, asked, take, earlier=self.told_before(turn), over=over)
        came = self.required(turn, present, asked, found, patience, accept.not_finite)
        for i in came if upper.in_order else ():
            answer(client(i), found.answers[client(i)])
        return came


class Upper:
    """This is the half of the model that an edge holds in an edge round."""

    def __init__(self, cut: Cutting, weights: Weights) -> None:
        self._cut, self._sharing, self.weights = cut, cut.work.algorithm.sharing, weights
        self._fresh = cut.work.task.fresh(cut.work.lr, weights)
        self._memory = self._fresh
        self._memories: dict[int, Any] = {}  # of COPIES
        self._found: dict[int, tuple[float, Any, Any]] = {}  # loss, gradient, statistics

    @property
    def in_order(self) -> bool:
        """Say whether clients must be answered one after the other."""
        return self._sharing is Sharing.SEQUENTIAL

    def answer(self, i: int, message: Message, iteration: int) -> Any:
        """Return the gradient at the cut of a client's loss."""
        value, gradient, statistics, down = self._cut.at_edge(
            self.weights, message.tensors[AT_CUT], message.tensors[LABELS], np.int32(i), np.int32(iteration)
        )
        self._found[i] = (float(value), gradient, statistics)
        if self.in_order:
            self.weights, self._memory = self._cut.step(self.weights, self._memory, gradient, statistics)
        return down.gradient

    def step(self, clients: list[int], share: list[float]) -> float:
        """Step the half by what was found for these clients; return their loss."""
        found, self._found = [self._found[i] for i in clients], {}
        gradients, statistics = [each[1] for each in found], [each[2] for each in found]
        if self._sharing is Sharing.MEAN:
            both = _mean(share, gradients), _mean(share, statistics)
            self.weights, self._memory = self._cut.step(self.weights, self._memory, *both)
        if self._sharing is Sharing.COPIES:  # averaged copies are equal, only optimisers' memories differ
            stepped = []
            for i, *own in zip(clients, gradients, statistics, strict=True):
                copy, self._memories[i] = self._cut.step(self.weights, self._memories.get(i, self._fresh), *own)
                stepped.append(copy)
            self.weights = _mean(share, stepped)
        return sum(s * each[0] for s, each in zip(share, found, strict=True))


def _mean(share: list[float], models: list[Weights]) -> Weights:
    """Return the weighted mean of models, added up in order."""
    return {
        path: jnp.asarray(sum(s * np.asarray(m[path]) for s, m in zip(share, models, strict=True)))
        for path in models[0]
    }
