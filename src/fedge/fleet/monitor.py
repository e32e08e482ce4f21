"""A monitor listens to edges that have no cloud: to the runner it is an engine whose rounds others make.

    state       edge → monitor: its model after a global round, and what it tells of itself

It says nothing itself but when all is over.
"""

from __future__ import annotations

import logging
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedge.core.contract import State
from fedge.core.update import Kept
from fedge.errors import FleetError
from fedge.fleet.leader import Leader
from fedge.fleet.work import Work
from fedge.net.gather import PASSED, Patience, gather
from fedge.net.hub import Hub, Place
from fedge.net.log_file import note
from fedge.net.names import Name, edge
from fedge.net.wire import Message, is_number

STATE = "state"
AHEAD = 256  # rounds that edges may be ahead of what is tested


class Monitor(Leader):
    """This waits for the edges' models."""

    def __init__(self, work: Work, hub: Hub, patience: Patience) -> None:
        super().__init__(work, hub, patience)
        self._expected = 0  # rounds up to which messages may come

    def begin(self, index: int) -> None:
        """Let models of rounds from this one on come."""
        form = {edge(cell): self.work.model_form(cell) for cell in range(self.work.topology.cells)}
        first = max(self._expected, index)
        self._expected = index + AHEAD
        self.hub.expect({Place(name, number): {STATE: own} for name, own in form.items()
                         for number in range(first, self._expected)})  # fmt: skip

    def one_round(self, state: State, index: int) -> State:
        self.begin(index)
        places = {edge(cell): Place(edge(cell), index) for cell in range(self.work.topology.cells)}
        patience = Patience(self.patience.deadline, 1.0)
        found = gather(self.hub, places, dict.fromkeys(places), patience, len(places), _readable,
                       pulse=lambda part: self.pulse(index, part), in_order=True)  # fmt: skip
        if found.missing and set(found.missing.values()) == {PASSED}:
            note("missed", f"the monitor has missed round {index + 1}; its row repeats what was known before",
                 level=logging.WARNING, round=index + 1)  # fmt: skip
            self.took = 0.0
            return state
        if found.missing:
            reasons = ", ".join(f"{name.words}: {why}" for name, why in sorted(found.missing.items()))
            raise FleetError(f"no model of round {index + 1} came from some edges ({reasons})")
        messages = [found.answers[name] for name in sorted(found.answers)]
        for message in messages:
            self.hear(message.sender.number, message.facts)
        stacked: Any = {
            path: jnp.asarray(np.stack([message.tensors[path] for message in messages])) for path in messages[0].tensors
        }
        said = [message.facts["loss"] for message in messages]
        losses = [float("nan") if loss is None else float(loss) for loss in said]
        self.took = max(float(message.facts["seconds"]) for message in messages)
        self.loss = float(np.dot(self.work.topology.cell_weight, losses))
        return state._replace(state=stacked) if isinstance(state, Kept) else stacked


def _readable(name: Name, message: Message) -> str | None:
    loss, seconds = message.facts.get("loss", ""), message.facts.get("seconds")
    known = (loss is None or is_number(loss)) and is_number(seconds)
    return None if known else f"its {message.kind} does not say loss and seconds in numbers"
