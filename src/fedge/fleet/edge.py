"""An edge stands between its clients and the cloud: it gets a model, makes its cell's edge rounds, and sends it up.

    deal        cloud → edge: the cell's model (HIST: its compact submodel)
    merged      edge → cloud: the same after `edge_rounds` edge rounds; or absent, where too few clients answered

Which clients it waits for, and for how long, is its cell's business.
"""

from __future__ import annotations

import math
import time

import numpy as np

from fedge.core import tree
from fedge.core.update import Hop
from fedge.errors import FleetError
from fedge.fleet.cell import Cell, Dealt, DivergedError, NoQuorumError
from fedge.fleet.client import mask_of, masks_for
from fedge.fleet.memory import COUNTED
from fedge.fleet.told import ended
from fedge.fleet.work import Numbers
from fedge.net.gather import LeavingError
from fedge.net.tally import Counts
from fedge.net.uplink import Uplink
from fedge.net.wire import Form, Head, Message, is_number

DEAL, MERGED, ABSENT = "deal", "merged", "absent"


class Edge:
    """This answers a cloud's deals."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self.work = cell, cell.work
        self._form = self.work.model_form(cell.cell)
        self._answered: tuple[tuple[int, int], Message] | None = None  # (round, attempt) of the last deal, its answer

    def expect(self, head: Head) -> Form:
        """Say what the cloud may send."""
        if head.bare.kind == DEAL and head.bare.receiver == self.cell.hub.me:
            return self._form
        raise FleetError(f"{head.bare.sender.words} asks {self.cell.hub.me.words} for what it cannot do: "
                         f"{head.bare.kind}")  # fmt: skip

    def answer(self, message: Message) -> Message:
        """Make a global round's edge rounds, once: a cloud whose link was cut asks again for what is there already."""
        asked = (message.round, message.attempt)
        if self._answered is None or self._answered[0] != asked:
            self._answered = (asked, self._made(message))
        return self._answered[1]

    def _made(self, message: Message) -> Message:
        began, seconds = time.perf_counter(), message.facts.get("seconds")
        model = dict(message.tensors)
        kind, tensors, facts = MERGED, Numbers(), dict[str, object]()
        try:
            limit = float(seconds) if is_number(seconds) else None
            counted = message.facts.get(COUNTED)
            dealt = Dealt(model, mask_of(message), int(counted) if is_number(counted) else None)
            trained = self.cell.global_round(message.round, dealt, limit)
            if not math.isfinite(trained.loss):
                raise DivergedError(f"the loss of the clients of {self.cell.hub.me.words} is no finite number")
            tensors = self._sent_up(model, trained.model, message.round)
            facts = {"loss": trained.loss, "client_seconds": trained.seconds}
        except NoQuorumError as problem:
            kind, facts = ABSENT, {"reason": str(problem)}
        except DivergedError as problem:
            kind, facts = ABSENT, {"reason": str(problem), "diverged": True}
        facts |= {"seconds": time.perf_counter() - began, "sent": plain(self.cell.hub.tally.counts()),
                  "connected": [str(name) for name in self.cell.hub.connected()]}  # fmt: skip
        ended(self.cell.hub, message.round, time.perf_counter() - began)
        masks = masks_for(tensors, message.masks)
        return Message(kind, message.receiver, message.sender, message.round, message.edge_round, message.step,
                       message.attempt, tensors=tensors, masks=masks, facts=facts)  # fmt: skip

    def _sent_up(self, origin: Numbers, model: Numbers, index: int) -> Numbers:
        """Return the tensors that bring an edge's model to the cloud."""
        work = self.work
        if (codec := work.way.backhaul) is None:
            return model
        trained = {path: w for path, w in model.items() if path in work.task.trainable}
        moved = {path: np.asarray(w) for path, w in tree.subtract(dict(trained), origin).items()}
        rest = {path: w for path, w in model.items() if path not in trained}
        iteration = (index + 1) * work.schedule.period
        return rest | work.encode(Hop.BACKHAUL, codec, self.cell.cell, iteration, moved)


def plain(counts: Counts) -> dict[str, dict[str, list[int]]]:
    """Write counts as plain values of JSON."""
    return {tier: {str(name): [*each] for name, each in links.items()} for tier, links in counts.items()}


def serve(edge: Edge, uplink: Uplink) -> None:
    """Answer the cloud until it says that all is done; clients of an edge that ends before dial it again."""
    hub, over = edge.cell.hub, False
    try:
        for message in uplink.messages():
            uplink.send(edge.answer(message))
        over = True
    except LeavingError:
        return
    finally:
        hub.stop(f"{hub.me.words} has ended", quietly=not over)
