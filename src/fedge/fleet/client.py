"""A client trains with its own samples, and when its edge says so; a process may host several.

    start       edge → client: the model, or the clients' part of it    then local_steps with its own samples
    update      client → edge: the same part, trained

What an update undergoes on its way is as in the simulator: a codec encodes it here and its edge decodes it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from fedge.core import tree
from fedge.core.client import Samples
from fedge.core.update import Hop
from fedge.errors import FleetError
from fedge.fleet.work import Numbers, Work, padded
from fedge.net.names import Name, client
from fedge.net.uplink import Uplink
from fedge.net.wire import Form, Head, Message, Tensors

START, UPDATE = "start", "update"


class Clients:
    """These are one process's clients of one cell."""

    def __init__(self, work: Work, numbers: Sequence[int]) -> None:
        self.work, self.numbers = work, tuple(sorted(numbers))
        (self.cell,) = {int(work.topology.cell[i]) for i in self.numbers}
        self._samples = samples_of(work, self.numbers)
        self._form = work.form(self.cell, work.way.downlink, client=True)  # links are read in threads without float64

    @property
    def names(self) -> tuple[Name, ...]:
        return tuple(client(i) for i in self.numbers)

    def expect(self, head: Head) -> Form:
        """Say what the edge may send."""
        if head.bare.kind == START and head.bare.receiver in self.names:
            return self._form
        raise FleetError(f"{head.bare.sender.words} asks {head.bare.receiver.words} for what it cannot do: "
                         f"{head.bare.kind}")  # fmt: skip

    def answer(self, message: Message) -> Message:
        """Make a local round."""
        work, began, number = self.work, time.perf_counter(), message.receiver.number
        start = arrived_model(work, self.cell, message)
        first, mask = work.first(message.round, message.edge_round), mask_of(message)
        weights, loss = work.train(start, mask, self._samples[number], number, first)
        tensors: Numbers = {path: np.asarray(w) for path, w in weights.items()}
        if (codec := work.way.uplink) is not None:
            trained = [path for path in tensors if path in work.task.trainable]
            moved = tree.subtract({path: weights[path] for path in trained}, start)
            rest = {path: w for path, w in tensors.items() if path not in trained}
            tensors = rest | work.encode(Hop.UPLINK, codec, number, first, moved)
        value = float(loss)
        facts = {"loss": value if np.isfinite(value) else None, "seconds": time.perf_counter() - began}
        return Message(UPDATE, message.receiver, message.sender, message.round, message.edge_round, message.step,
                       tensors=tensors, masks=masks_for(tensors, message.masks), facts=facts)  # fmt: skip


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


def serve(clients: Clients, uplink: Uplink) -> None:
    """Answer an edge until it says that all is done."""
    for message in uplink.messages():
        uplink.send(clients.answer(message))
