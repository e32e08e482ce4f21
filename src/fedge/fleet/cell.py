"""A cell is an edge and its clients: what the naive engine does in an edge round, with clients at the end of links.

Models are folded in the order in which the simulator takes the clients, not in that of arrival. Whose answer does not
come in time, or is no finite number, does not count, and the others' shares are made to sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedge.core import tree
from fedge.core.edge import aggregate_of
from fedge.core.update import Hop
from fedge.fleet.client import START, UPDATE
from fedge.fleet.entries import Keeping
from fedge.fleet.memory import CHANGE, CONTROL, ORIGIN, CellMemory
from fedge.fleet.told import without
from fedge.fleet.work import Numbers, Work
from fedge.net.gather import Asks, Gathered, Patience, gather
from fedge.net.hub import Hub, Place, new_attempt
from fedge.net.link import Link
from fedge.net.names import Name, client
from fedge.net.wire import Form, Message, Slot, is_number


class Dealt(NamedTuple):
    """This is what a cell begins a global round with."""

    model: Numbers
    mask: Numbers | None = None
    counted: int | None = None  # the last global round in which the cell's model counted in the cloud, if there is one


class Turn(NamedTuple):
    """This says which edge round it is."""

    number: int  # of the global round
    edge_round: int
    first: int  # iteration
    dealt: Dealt
    attempt: int = 0

    @property
    def mask(self) -> Numbers | None:
        return self.dealt.mask

    def place(self, number: int, step: int = 0) -> Place:
        """Return where a client's message of this edge round belongs."""
        return Place(client(number), self.number, self.edge_round, step, self.attempt)


class Trained(NamedTuple):
    """This is what an edge round comes to."""

    model: Numbers
    loss: float
    seconds: float = 0.0  # of the slowest client's own work


class NoQuorumError(Exception):
    """Too few of those asked have answered."""


class Cell:
    """This makes a cell's edge rounds over the links of a hub."""

    def __init__(self, work: Work, hub: Hub, cell: int, patience: Patience, kept: Keeping | None = None) -> None:
        self.work, self.hub, self.cell, self.patience = work, hub, cell, patience
        self._edge = aggregate_of(work.way.edge_rule)
        self.memory = CellMemory(work, cell, hub.me, kept)
        self._told: dict[tuple[str, Name], Link] = {}  # over which link a client was told something this global round
        self.pulse: Callable[[float], None] = lambda part: None  # called while it waits

    def remember(self, place: Keeping) -> None:
        """Keep what is to be remembered somewhere else than was said at first."""
        self.memory = CellMemory(self.work, self.cell, self.hub.me, place)

    def global_round(self, index: int, dealt: Dealt, seconds: float | None = None) -> Trained:
        """Make the edge rounds of a global round, within so many seconds if that is said."""
        rounds = self.work.schedule.edge_rounds
        each = self.patience.deadline if seconds is None else min(self.patience.deadline, seconds / rounds)
        patience = replace(self.patience, deadline=each)
        model, loss, slowest = dealt.model, 0.0, 0.0
        moments = self.work.edge_moments(model)
        self.memory.begin(index, model, dealt.counted)
        self._told.clear()
        done, attempt = False, new_attempt()
        try:
            for a in range(rounds):
                turn = Turn(index, a, self.work.first(index, a), dealt, attempt)
                trained = self.edge_round(model, turn, patience)
                model, moments = self.work.step_edge(model, trained.model, dealt.mask, moments)
                loss, slowest = loss + trained.loss / rounds, slowest + trained.seconds
            done = True
        finally:
            self.memory.keep(index, model if done else None)
        return Trained(model, loss, slowest)

    def edge_round(self, model: Numbers, turn: Turn, patience: Patience) -> Trained:
        """Let the clients that are drawn train from an edge's model, and combine theirs."""
        work = self.work
        clients = work.participants(self.cell, turn.number * work.schedule.edge_rounds + turn.edge_round)
        start, tensors = self.handed(model, turn)
        masks = {path: mask.astype(bool) for path, mask in (turn.mask or {}).items() if path in tensors}
        names = {client(i): i for i in clients}
        places = {name: turn.place(i) for name, i in names.items()}
        asks: Asks = {
            name: Message(START, self.hub.me, name, turn.number, turn.edge_round, 0, turn.attempt, tensors, masks,
                          facts=self.memory.facts(name.number))
            for name in names
        }  # fmt: skip
        form = work.form(self.cell, work.way.uplink, client=True)
        self.hub.expect({place: {UPDATE: {**form, **self.change_form}} for place in places.values()})
        accept = Acceptance({path: mask for path, mask in masks.items() if path in form})
        before = self.told_before(turn)
        found = gather(self.hub, places, asks, patience, len(clients), accept, self.pulse, before)
        counted: dict[int, Message] = {}
        try:
            came = self.required(turn, clients, len(clients), found, patience, accept.not_finite)
            counted = {i: found.answers[client(i)] for i in came}
        finally:
            self.memory.learn(work.turn(turn.number, turn.edge_round), clients, counted)
        share = self.shares(came)
        models = [start | self.arrived(start, found.answers[client(i)]) for i in came]
        facts = [found.answers[client(i)].facts for i in came]
        loss = sum(s * float(f["loss"]) for s, f in zip(share, facts, strict=True))
        return Trained(self.folded(start, share, models), loss, max(float(f["seconds"]) for f in facts))

    @property
    def change_form(self) -> Form:
        """Say what comes of a client's row of a correction with its model."""
        correction = self.work.way.correction
        if correction is None or not correction.up:
            return {}
        return {f"{CHANGE}{path}": Slot(w.dtype.name, w.shape) for path, w in self.memory.row.items()}

    def told_before(self, turn: Turn) -> Callable[[Name, Link], list[Message]]:
        """Return what goes to a client before a start: the cell's row, and the model its global round began with."""
        work, correction = self.work, self.work.way.correction
        held = {path: w for path, w in turn.dealt.model.items() if work.at_client(path)}
        masks = {path: mask.astype(bool) for path, mask in (turn.mask or {}).items() if path in held}

        def message(kind: str, name: Name, tensors: Numbers, masks: Numbers) -> Message:
            return Message(kind, self.hub.me, name, turn.number, turn.edge_round, tensors=tensors, masks=masks)

        def before(name: Name, link: Link) -> list[Message]:
            told = []
            if work.way.prox_to_round and self._told.get((ORIGIN, name)) is not link:
                self._told[ORIGIN, name] = link
                told += [] if self._brings_origin(turn) else [message(ORIGIN, name, held, masks)]
            if correction is not None and (correction.down or self._told.get((CONTROL, name)) is not link):
                self._told[CONTROL, name] = link
                told.append(message(CONTROL, name, self.memory.row, {}))
            return told

        return before

    def _brings_origin(self, turn: Turn) -> bool:
        """Say whether a start is itself the model that the global round began with."""
        return turn.edge_round == 0 and not self.work.sends_origin

    def shares(self, clients: list[int]) -> list[float]:
        """Return how much each of these counts; the shares sum to 1."""
        weight = [float(self.work.topology.weight[i]) for i in clients]
        return [w / sum(weight) for w in weight]

    def folded(self, start: Numbers, share: list[float], models: list[Numbers]) -> Numbers:
        """Combine clients' models at the edge."""
        total = self._edge.empty(start)
        for own, model in zip(share, models, strict=True):
            total = self._edge.add(total, own, model)
        return {path: np.asarray(w) for path, w in self._edge.close(total, start).items()}

    def required(
        self, turn: Turn, order: list[int], asked: int, found: Gathered, patience: Patience, not_finite: set[Name]
    ) -> list[int]:
        """Return the clients that count, in order, or say that they are too few of those asked."""
        for name, reason in found.missing.items():
            without(self.hub, name, turn.number, reason, turn.edge_round)
            if self._brings_origin(turn):
                self._told.pop((ORIGIN, name), None)  # who is busy takes up the next start, and never sees this one
        came = [i for i in order if client(i) in found.answers]
        if len(not_finite) == asked:
            raise DivergedError(f"no client of {self.hub.me.words} sent finite numbers")
        if len(came) < (enough := patience.enough(asked)):
            raise NoQuorumError(f"{len(came)} of {asked} clients answered and {enough} are needed")
        return came

    def handed(self, model: Numbers, turn: Turn) -> tuple[Numbers, Numbers]:
        """Return an edge's model as its clients get it, and the tensors that bring it to them."""
        work = self.work
        sent = {path: w for path, w in model.items() if work.at_client(path)}
        if (codec := work.way.downlink) is None:
            return model, sent
        trained = {path: w for path, w in sent.items() if path in work.task.trainable}
        coded = work.encode(Hop.DOWNLINK, codec, self.cell, turn.first, trained)
        arrived = work.decode(Hop.DOWNLINK, codec, coded, trained)
        rest = {path: w for path, w in sent.items() if path not in trained}
        return model | {path: np.asarray(w) for path, w in arrived.items()}, rest | coded

    def arrived(self, start: Numbers, message: Message) -> Numbers:
        """Return a client's model, or its part of one, as it has arrived."""
        codec = self.work.way.uplink
        if codec is None:
            return {path: w for path, w in message.tensors.items() if path in start}
        like = {p: w for p, w in start.items() if p in self.work.task.trainable and self.work.at_client(p)}
        moved = self.work.decode(Hop.UPLINK, codec, dict(message.tensors), like)
        rest = {path: w for path, w in message.tensors.items() if path in start}
        return rest | {path: np.asarray(w) for path, w in tree.add(dict(moved), like).items()}


class DivergedError(Exception):
    """Nothing that came is a finite number."""


class Acceptance:
    """This looks at what a client sends before it counts, and remembers whose numbers are not finite."""

    def __init__(self, masks: Numbers, says: tuple[str, ...] = ("loss", "seconds")) -> None:
        self._masks, self._says, self.not_finite = masks, says, set[Name]()

    def __call__(self, name: Name, message: Message) -> str | None:
        masks, facts = message.masks, message.facts
        if masks.keys() != self._masks.keys() or any(not np.array_equal(m, self._masks[p]) for p, m in masks.items()):
            return "its update is of another part of the model than it was dealt"
        floats = [x for x in message.tensors.values() if np.issubdtype(x.dtype, np.floating)]
        if facts.get("loss", 0) is None or not all(np.isfinite(x).all() for x in floats):
            self.not_finite.add(name)
            return f"its {message.kind} holds numbers that are not finite"
        if not all(is_number(facts.get(key)) for key in self._says):
            return f"its {message.kind} does not say {' and '.join(self._says)} in numbers"
        return None
