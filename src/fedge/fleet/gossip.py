"""An edge without a cloud makes its cell's edge rounds, and after them exchanges models with its neighbours, α times.

    exchange    edge → neighbouring edge: its model, before each exchange

Whoever comes back after a loss is sent again what it may have missed: what was sent in this round and in the last one.
A neighbour whose model does not come in time leaves its share to the edge's own, so that columns of P still sum to 1.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedge.core.edge import mix
from fedge.core.update import Kept as Remembered
from fedge.errors import FleetError
from fedge.fleet.cell import Acceptance, Cell, Dealt, DivergedError, NoQuorumError
from fedge.fleet.edge import plain
from fedge.fleet.kept import Kept
from fedge.fleet.monitor import STATE
from fedge.fleet.told import ended, without
from fedge.fleet.work import Numbers, Work
from fedge.net.gather import LOOK, Asks, LeavingError, Patience, gather
from fedge.net.hub import Hub, NotNowError, Place
from fedge.net.link import Link
from fedge.net.names import MONITOR, Name, edge
from fedge.net.uplink import LONGEST_PAUSE, Dialling, Uplink
from fedge.net.wire import Form, Head, Message

EXCHANGE = "exchange"
LINGER = 5.0  # seconds for neighbours to get the last model, where nobody says that all is over
log = logging.getLogger(__name__)


def neighbours(work: Work, cell: int) -> tuple[int, ...]:
    """Return the edges that a cell's edge has a link to, in ascending order."""
    gossip = work.algorithm.gossip
    assert gossip is not None
    return tuple(sorted(gossip.graph[cell]))


def start_of(work: Work, cell: int) -> Numbers:
    """Return the model that a cell's edge begins with."""
    state = work.made.start
    models = state.state if isinstance(state, Remembered) else state
    return {path: np.asarray(w[cell]) for path, w in models.items()}


@dataclass
class GossipEdge:
    """This is an edge that keeps its own model."""

    cell: Cell
    patience: Patience
    model: Numbers
    sent: dict[int, list[Numbers]] = field(default_factory=dict)  # round → what it sent before each exchange
    loss: float | None = 0.0  # of its clients, where that was a finite number
    seconds: float = 0.0  # of the last round
    client_seconds: float = 0.0
    exchange_seconds: float = 0.0
    expected: int = 0  # rounds of neighbours that may come
    known: dict[Name, Link] = field(default_factory=dict)  # over which link a neighbour was last asked

    def round(self, index: int) -> None:
        """Make a global round."""
        work, me = self.cell.work, self.cell.hub.me
        gossip = work.algorithm.gossip
        assert gossip is not None
        self.expect(index)
        began = time.perf_counter()
        try:
            trained = self.cell.global_round(index, Dealt(self.model))
            model, self.loss, self.client_seconds = trained.model, trained.loss, trained.seconds
        except (NoQuorumError, DivergedError) as problem:
            log.warning("%s does not train in round %d: %s", me.words, index + 1, problem)
            model = self.model
            if isinstance(problem, DivergedError):
                self.loss = None
        self.sent = {number: models for number, models in self.sent.items() if number == index - 1}
        shares = {j: float(gossip.mixing[j, me.number]) for j in (me.number, *neighbours(work, me.number))}
        trained_at = time.perf_counter()
        for step in range(gossip.steps):
            model = self._exchange(index, step, model, shares)
        self.model, self.seconds = model, time.perf_counter() - began
        self.exchange_seconds = time.perf_counter() - trained_at
        ended(self.cell.hub, index, self.seconds)

    def expect(self, index: int) -> None:
        """Let neighbours' models of this round and the next one come: a neighbour may be ahead by one."""
        work, hub = self.cell.work, self.cell.hub
        gossip, form = work.algorithm.gossip, work.model_form(self.cell.cell)
        assert gossip is not None
        hub.forget(lambda place: place.sender.role == hub.me.role and place.round < index)
        numbers = range(max(index, self.expected), index + 2)
        self.expected = index + 2
        hub.expect({place_of(edge(j), number, step): {EXCHANGE: form} for j in neighbours(work, self.cell.cell)
                    for number in numbers for step in range(gossip.steps)})  # fmt: skip

    def _exchange(self, index: int, step: int, model: Numbers, shares: Mapping[int, float]) -> Numbers:
        work, me = self.cell.work, self.cell.hub.me
        self.sent.setdefault(index, []).append(model)
        names = {edge(j): j for j in shares if j != me.number}
        places = {name: place_of(name, index, step) for name in names}
        asks: Asks = {name: self._message(name, index, step, model) for name in names}

        def earlier(name: Name, link: Link) -> list[Message]:
            before, self.known[name] = self.known.get(name), link
            if before is link:
                return []
            sent = [(number, n, each) for number, models in sorted(self.sent.items()) for n, each in enumerate(models)]
            return [self._message(name, *each) for each in sent[:-1]]

        accept = Acceptance({}, ())
        found = gather(self.cell.hub, places, asks, self.patience, len(names), accept, earlier=earlier)
        for name, reason in found.missing.items():
            without(self.cell.hub, name, index, reason)
        came: dict[int, Any] = {names[name]: dict(message.tensors) for name, message in found.answers.items()}
        held = {j: shares[j] for j in (me.number, *came)}
        held[me.number] += sum(share for j, share in shares.items() if j not in held)
        return {path: np.asarray(w, work.task.dtype) for path, w in mix(model, came, held, me.number).items()}

    def catch_up(self) -> None:
        """Send neighbours that are there again what they may have missed, once there is no exchange to come."""
        for name in map(edge, neighbours(self.cell.work, self.cell.cell)):
            link = self.cell.hub.link(name)
            if link is None or self.known.get(name) is link:
                continue
            self.known[name] = link
            for number, models in sorted(self.sent.items()):
                for step, model in enumerate(models):
                    link.send(self._message(name, number, step, model))

    def report(self, index: int) -> Message:
        """Return what a monitor is told after a round."""
        hub = self.cell.hub
        facts = {
            "loss": self.loss, "seconds": self.seconds, "client_seconds": self.client_seconds,
            "exchange_seconds": self.exchange_seconds, "sent": plain(hub.tally.counts()),
            "connected": [str(name) for name in hub.connected()],
        }  # fmt: skip
        return Message(STATE, hub.me, MONITOR, index, tensors=self.model, facts=facts)

    def _message(self, neighbour: Name, index: int, step: int, model: Numbers) -> Message:
        return Message(EXCHANGE, self.cell.hub.me, neighbour, index, 0, step, tensors=model)


def place_of(neighbour: Name, index: int, step: int) -> Place:
    return Place(neighbour, index, 0, step)


def serve(
    node: GossipEdge, rounds: int, dial: Sequence[Dialling], monitor: Dialling | None, kept: Kept | None = None,
    listen: Callable[[], object] = lambda: None,
) -> None:  # fmt: skip
    """Make global rounds until the last one, or until the monitor says stop; neighbours to `dial` have lower numbers.

    What comes back is taken up where it was kept; it listens to its neighbours once it awaits what they send again.
    """
    hub, first = node.cell.hub, 0 if kept is None else kept.restore(node)
    node.expect(first)
    listen()
    over = False
    for dialling in dial:
        threading.Thread(target=_stay_connected, args=(hub, dialling), daemon=True).start()
    uplink, listening = None, threading.Thread()
    if monitor is not None:
        uplink = Uplink(monitor, _nothing, again=4)
        if first:
            uplink.send(node.report(first - 1))  # which may have been lost
        listening = threading.Thread(target=_listen, args=(uplink, hub), daemon=True)
        listening.start()
    hub.progress.rounds = rounds
    try:
        for index in range(first, rounds):
            node.round(index)
            if kept is not None:
                kept.save(node, index + 1)
            if uplink is not None:
                uplink.send(node.report(index))
        linger = node.patience.deadline if listening.is_alive() else LINGER
        end = time.monotonic() + linger
        while not hub.leaving and time.monotonic() < end:
            hub.wait(hub.changes, LOOK)
            node.catch_up()
            if uplink is not None and uplink.connected:
                end = time.monotonic() + linger
        over = True
    except LeavingError:
        pass
    finally:
        hub.stop(f"{hub.me.words} has ended", quietly=not over)  # clients of an edge that is restarted dial it again


def _stay_connected(hub: Hub, dialling: Dialling) -> None:
    """Dial a neighbour, and again whenever it was lost."""
    while not hub.leaving:
        try:
            link, frames = dialling.connect(hub.tally)
        except FleetError as problem:
            if not hub.leaving:
                log.warning("%s: %s", hub.me.words, problem)
            if "refuses" in str(problem):
                return
            time.sleep(LONGEST_PAUSE)  # a certificate that is wrong is so at once, and again
            continue
        with contextlib.suppress(NotNowError):
            hub.attach(link, frames)
            link.gone.wait()
        link.channel.close()


def _listen(uplink: Uplink, hub: Hub) -> None:
    """Hear from the monitor when all is over; an edge goes on without one, and dials it again unless it was refused."""
    while not hub.leaving:
        try:
            for _ in uplink.messages():
                pass
            hub.stop("the monitor says that the run is over")
            return
        except FleetError as problem:
            if not hub.leaving:
                log.warning("%s goes on without the monitor: %s", hub.me.words, problem)
            if "refuses" in str(problem):
                return


def _nothing(head: Head) -> Form:
    raise FleetError(f"a monitor sent a {head.bare.kind}")
