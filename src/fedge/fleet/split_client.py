"""A client of a split model holds the lower half, and at each step waits for the gradient at the cut.

start        edge → client: the client's half             then, for each step:
activations  client → edge: of its minibatch, and the labels
gradient     edge → client: of the loss, at the cut; nothing where clients hold no stages (cut=0)
update       client → edge: its half, after local_steps
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedge.core.client import NOTHING, Link
from fedge.fleet.client import START, UPDATE, Clients, arrived_model
from fedge.fleet.entries import Keeping
from fedge.fleet.memory import ORIGIN
from fedge.fleet.split import ACTIVATIONS, AT_CUT, GRADIENT, Cutting
from fedge.fleet.work import Numbers, Work
from fedge.net.tally import LABELS
from fedge.net.uplink import Uplink
from fedge.net.wire import Form, Head, Message


@dataclass
class Steps:
    """This is where a client stands in an edge round."""

    message: Message  # the start
    began: Numbers
    link: Link
    half: Any
    memory: Any
    rows: Any  # of its samples, for each step
    step: int = 0
    seconds: float = 0.0


class SplitClients(Clients):
    """These are one process's clients of one cell; each of them may be in the middle of its own edge round."""

    def __init__(self, work: Work, numbers: Any, kept: Keeping | None = None) -> None:
        super().__init__(work, numbers, kept)
        self.cut = Cutting(work, self.cell)
        self._under_way: dict[int, Steps] = {}

    def expect(self, head: Head) -> Form:
        if head.bare.kind == GRADIENT and head.bare.receiver in self.names:
            return self.cut.gradient_form
        return super().expect(head)

    def next(self, message: Message) -> Message | None:
        """Return what a client says to this; None where it comes from an edge round that is over."""
        number, began = message.receiver.number, time.perf_counter()
        if message.kind == ORIGIN:
            return self.answer(message)
        if message.kind == START:
            if (begun := self._begin(message)) is None:
                return None
            steps = self._under_way[number] = begun
        else:
            found = self._under_way.get(number)
            if found is None or message.step != found.step or message.attempt != found.message.attempt:
                return None
            steps = found
            self._step(steps, message)
        last = steps.step == self.work.schedule.local_steps
        kind, tensors = (UPDATE, self._update(steps)) if last else (ACTIVATIONS, self._activations(steps))
        steps.seconds += time.perf_counter() - began
        start, facts = steps.message, {"seconds": steps.seconds}
        return Message(kind, start.receiver, start.sender, start.round, start.edge_round, steps.step, start.attempt,
                       tensors, facts=facts)  # fmt: skip

    def _begin(self, message: Message) -> Steps | None:
        work, number = self.work, message.receiver.number
        start = arrived_model(work, self.cell, message)
        if (link := self.link(message, start)) is None:
            return None
        first = work.first(message.round, message.edge_round)
        own, count = self._samples[number], work.schedule.local_steps
        rows = work.program("rows", lambda: lambda own, i, k: work.task.indices(work.key, own, i, k, count))
        half = {path: jnp.asarray(w) for path, w in start.items()}
        drawn = rows(own, np.int32(number), np.int32(first))
        return Steps(message, start, link, half, work.task.fresh(work.lr, half), drawn)

    def _draw(self, steps: Steps) -> Any:
        """Return the key of this step's dropout, which the edge draws too."""
        first = self.work.first(steps.message.round, steps.message.edge_round)
        return np.int32(steps.message.receiver.number), np.int32(first + steps.step)

    def _activations(self, steps: Steps) -> Numbers:
        number = steps.message.receiver.number
        at_cut, labels = self.cut.forward(
            steps.half, self._samples[number], steps.rows[steps.step], *self._draw(steps)
        )  # fmt: skip
        return {AT_CUT: np.asarray(at_cut), LABELS: np.asarray(labels)}

    def _step(self, steps: Steps, message: Message) -> None:
        """Make the step of the client's half."""
        number = steps.message.receiver.number
        if steps.half:
            steps.half, steps.memory = self.cut.backward(
                steps.half, steps.memory, steps.began, steps.link, self._samples[number], steps.rows[steps.step],
                message.tensors[AT_CUT], *self._draw(steps),
            )  # fmt: skip
        steps.step += 1

    def _update(self, steps: Steps) -> Numbers:
        del self._under_way[steps.message.receiver.number]
        tensors: Numbers = {path: np.asarray(w) for path, w in steps.half.items()}
        if self.work.way.uplink is None or not self.work.task.trainable & tensors.keys():
            return tensors
        return self.encoded(steps.message, steps.began, tensors, NOTHING)[0]


def serve(clients: SplitClients, uplink: Uplink) -> None:
    """Answer an edge until it says that all is done."""
    for message in uplink.messages():
        if (answer := clients.next(message)) is not None:
            uplink.send(answer)
