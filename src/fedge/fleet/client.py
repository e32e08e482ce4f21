"""A client trains with its own samples, and when its edge says so; a process may host several.

    start       edge → client: the model, or the clients' part of it    then local_steps with its own samples
    update      client → edge: the same part, trained; and how its row of a correction has changed

What an update undergoes on its way is as in the simulator: a codec encodes it here and its edge decodes it. What a
client keeps from one update to the next, and is told before a start, is in `memory.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from fedge.core import tree
from fedge.core.client import NOTHING, Link, Samples
from fedge.core.update import Hop, Memory
from fedge.errors import FleetError
from fedge.experiment.build import Experiment
from fedge.fleet.entries import Keeping
from fedge.fleet.memory import CHANGE, CONTROL, ORIGIN, ClientMemory, row_of
from fedge.fleet.work import Numbers, Work, on_host, padded
from fedge.net.names import Name, client
from fedge.net.uplink import Uplink
from fedge.net.wire import Form, Head, Message, Slot, Tensors

START, UPDATE = "start", "update"


class Clients:
    """These are one process's clients of one cell."""

    def __init__(self, work: Work, numbers: Sequence[int], kept: Keeping | None = None) -> None:
        self.work, self.numbers = work, tuple(sorted(numbers))
        (self.cell,) = {int(work.topology.cell[i]) for i in self.numbers}
        self._samples = samples_of(work, self.numbers)
        self._forms = {START: work.form(self.cell, work.way.downlink, client=True)}  # here: links' threads lack float64
        if work.way.prox_to_round:
            self._forms[ORIGIN] = work.model_form(self.cell, client=True)
        if work.way.correction is not None:
            row = row_of(work, self.cell)
            self._forms[CONTROL] = {path: Slot(w.dtype.name, w.shape) for path, w in row.items()}
        self._told: dict[tuple[str, int], tuple[int, int, Numbers]] = {}  # (kind, client) → round, edge round, what
        self._memories = {
            i: ClientMemory(work, self.cell, i, kept or Keeping()) for i in self.numbers if work.way.keeps
        }
        self._answered: dict[int, Message] = {}  # the last of each client that remembers

    @property
    def names(self) -> tuple[Name, ...]:
        return tuple(client(i) for i in self.numbers)

    def expect(self, head: Head) -> Form:
        """Say what the edge may send."""
        if head.bare.kind in self._forms and head.bare.receiver in self.names:
            return self._forms[head.bare.kind]
        raise FleetError(f"{head.bare.sender.words} asks {head.bare.receiver.words} for what it cannot do: "
                         f"{head.bare.kind}")  # fmt: skip

    def answer(self, message: Message) -> Message | None:
        """Make a local round; None where the client was only told something, or comes too late for its edge."""
        work, began, number = self.work, time.perf_counter(), message.receiver.number
        if message.kind != START:
            self._told[message.kind, number] = (message.round, message.edge_round, dict(message.tensors))
            return None
        last = self._answered.get(number)
        if last is not None and _try_of(last) == _try_of(message):  # its edge has asked again over a new link
            return last
        start = arrived_model(work, self.cell, message)
        if (link := self.link(message, start)) is None:
            return None
        memory = self._memories[number].recall(message, start) if number in self._memories else NOTHING
        first = work.first(message.round, message.edge_round)
        done = work.train(start, link, self._samples[number], memory, number, first)
        after = done.memory
        tensors = on_host(done.weights)
        if work.way.uplink is not None:
            tensors, after = self.encoded(message, start, tensors, after)
        if (correction := work.way.correction) is not None and correction.up:
            change = tree.subtract(after.shift, memory.shift)
            tensors |= {f"{CHANGE}{path}": np.asarray(w) for path, w in change.items()}
        if number in self._memories:
            self._memories[number].keep(message, start, after)  # before it is sent: what counts is not forgotten
        value = float(done.loss)
        facts = {"loss": value if np.isfinite(value) else None, "seconds": time.perf_counter() - began}
        update = Message(UPDATE, message.receiver, message.sender, message.round, message.edge_round, message.step,
                         message.attempt, tensors, masks_for(tensors, message.masks), facts)  # fmt: skip
        if number in self._memories:  # a client without one would make the same again, and need not hold it
            self._answered[number] = update
        return update

    def link(self, message: Message, start: Numbers) -> Link | None:
        """Return what a client knows of its cell besides a model to start from; None where it has missed some of it."""
        work, number, origin, control = self.work, message.receiver.number, None, None
        if work.way.prox_to_round:
            if message.edge_round == 0 and not work.sends_origin:
                self._told[ORIGIN, number] = (message.round, 0, start)
            index, _, origin = self._told.get((ORIGIN, number), (-1, 0, None))
            if index != message.round:
                return None
        if (correction := work.way.correction) is not None:
            *at, control = self._told.get((CONTROL, number), (-1, 0, None))
            if at != [message.round, message.edge_round if correction.down else at[1]]:
                return None
        return Link(mask_of(message), origin, control)

    def encoded(self, message: Message, start: Numbers, tensors: Numbers, memory: Memory) -> tuple[Numbers, Memory]:
        """Return the tensors that bring an update to its edge, and what the client then remembers."""
        work, codec, number = self.work, self.work.way.uplink, message.receiver.number
        assert codec is not None
        first = work.first(message.round, message.edge_round)
        trained = [path for path in tensors if path in work.task.trainable]
        moved = tree.subtract({path: tensors[path] for path in trained}, {path: start[path] for path in trained})
        wanted = tree.add(moved, memory.lost) if codec.feedback else moved
        sent = work.encode(Hop.UPLINK, codec, number, first, wanted)
        if codec.feedback:
            arrived = work.decode(Hop.UPLINK, codec, sent, wanted)
            memory = memory._replace(lost=tree.subtract(wanted, arrived))
        return {path: w for path, w in tensors.items() if path not in trained} | sent, memory


def _try_of(message: Message) -> tuple[int, int, int]:
    """Say which try at which edge round a start or an update is of."""
    return message.round, message.edge_round, message.attempt


def arrived_model(work: Work, cell: int, message: Message) -> Numbers:
    """Return the model that a start brings, as its clients get it."""
    codec = work.way.downlink
    if codec is None:
        return dict(message.tensors)
    whole = work.stack_of(cell).weights
    like = {p: jnp.zeros(w.shape, w.dtype) for p, w in whole.items() if work.at_client(p) and p in work.task.trainable}
    rest = {path: w for path, w in message.tensors.items() if path in whole}
    return rest | dict(work.decode(Hop.DOWNLINK, codec, dict(message.tensors), like))


def mask_of(message: Message) -> Numbers | None:
    """Return the mask that came with a model, in the numbers' own type; None where the cell owns all of it."""
    return {path: mask.astype(message.tensors[path].dtype) for path, mask in message.masks.items()} or None


def masks_for(tensors: Numbers, masks: Tensors) -> Numbers:
    """Return the masks of tensors that are sent as they are; an encoded update is of the whole, with zeros."""
    return {path: mask for path, mask in masks.items() if path in tensors}


def samples_of(work: Work, numbers: Sequence[int]) -> dict[int, Samples]:
    """Return the samples of these clients as windows on one array that holds theirs and no others'."""
    data = work.job.data
    rows = [data.order[data.start[i] : data.start[i] + data.size[i]] for i in numbers]
    own = np.concatenate(rows)
    x, y = (jnp.asarray(padded(np.asarray(a)[own])) for a in (data.x, data.y))
    order, found, first = jnp.arange(len(x), dtype=jnp.int32), dict[int, Samples](), 0
    for i, each in zip(numbers, rows, strict=True):
        found[i] = Samples(x, y, order, jnp.int32(first), jnp.int32(len(each)))
        first += len(each)
    return found


def only_samples_of(made: Experiment, numbers: Sequence[int]) -> Experiment:
    """Return an experiment that holds the samples of these clients and no others."""
    clients = made.topology.clients
    if unknown := [i for i in numbers if i >= clients]:
        raise FleetError(f"client {unknown[0]} is none of the {clients} clients of this run")
    data, own = made.job.data, made.dataset
    places = [slice(int(data.start[i]), int(data.start[i] + data.size[i])) for i in sorted(numbers)]
    rows = np.concatenate([data.order[place] for place in places]) if places else np.zeros(0, np.int32)
    order = np.zeros_like(data.order)
    if places:
        order[np.r_[*places]] = np.arange(len(rows))
    x, y = (whole[rows] if len(rows) else np.zeros_like(whole[:1]) for whole in (own.x_train, own.y_train))
    x_test, y_test = (np.zeros_like(whole[:1]) for whole in (own.x_test, own.y_test))
    dataset = replace(own, x_train=x, y_train=y, x_test=x_test, y_test=y_test, client=None)
    return replace(made, dataset=dataset, job=replace(made.job, data=data._replace(x=x, y=y, order=order)))


def serve(clients: Clients, uplink: Uplink) -> None:
    """Answer an edge until it says that all is done."""
    for message in uplink.messages():
        if (answer := clients.answer(message)) is not None:
            uplink.send(answer)
