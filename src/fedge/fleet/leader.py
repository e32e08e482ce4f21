"""Who leads a fleet is an engine: the cloud, or a monitor where there is none. Both keep account of their rounds."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable

from fedge.core.contract import State
from fedge.engine.base import Engine, Job
from fedge.errors import brief
from fedge.fleet.forecast import Parts, parts_of
from fedge.fleet.told import ended
from fedge.fleet.work import Work
from fedge.net.gather import Patience
from fedge.net.hub import Hub
from fedge.net.names import Name
from fedge.net.status import UNREADABLE, links_of
from fedge.net.tally import Bytes
from fedge.net.wire import Facts, is_number

log = logging.getLogger(__name__)


class Leader(Engine):
    """This makes global rounds over a hub's links, one after the other."""

    def __init__(self, work: Work, hub: Hub, patience: Patience) -> None:
        super().__init__(work.job)
        self.work, self.hub, self.patience = work, hub, patience
        self.said: dict[int, Facts] = {}  # what each edge told of itself last
        self.told: Callable[[int], None] = lambda index: None  # called after each round
        self.first: int | None = None  # round
        self.done = 0  # rounds, from the start of the run
        self.seconds: list[float] = []  # of each round that was made since
        self.took: float | None = None  # what nodes say that the round took, where this one only listens; 0: missed
        self.parts: list[Parts | None] = []  # of each round's seconds
        self.client_seconds: float | None = None  # of the slowest client in this round, if it asks clients itself
        self.loss = 0.0
        self._heard: list[Facts] = []  # in this round

    def retarget(self, job: Job) -> None:
        raise NotImplementedError("a fleet has one experiment")

    def rounds(self, state: State, first: int, count: int) -> tuple[State, float]:
        self.first = first if self.first is None else self.first
        for index in range(first, first + count):
            self._heard, self.client_seconds, began = [], None, time.perf_counter()
            state = self.one_round(state, index)
            seconds = time.perf_counter() - began if self.took is None else self.took
            if seconds:
                self.seconds.append(seconds)
                self.parts.append(self._divided(seconds))
                ended(self.hub, index, seconds)
            self.done = self.hub.progress.round = index + 1
            self.told(index)
        return state, self.loss

    def _divided(self, seconds: float) -> Parts | None:
        if self.client_seconds is None:
            return parts_of(seconds, self._heard)
        return Parts(self.client_seconds, cloud=max(0.0, seconds - self.client_seconds))

    @abstractmethod
    def one_round(self, state: State, index: int) -> State:
        """Make a global round, and say in `loss` what its clients' was."""

    def hear(self, cell: int, facts: Facts) -> None:
        """Keep what an edge tells of itself; what cannot be read is left out, for what an edge says stops no leader."""
        try:
            links_of(facts)
            if not is_number(facts["seconds"]):
                raise ValueError("seconds are no number")
        except UNREADABLE as problem:
            log.warning("edge %d says of itself what cannot be read (%s)", cell, brief(problem))
        else:
            self.said[cell] = facts
            self._heard.append(facts)

    def counted(self) -> dict[str, Bytes]:
        """Add up the bytes of each tier, as whoever was dialled has counted them."""
        total = dict(self.hub.tally.totals())
        for facts in self.said.values():
            for tier, links in links_of(facts)[1].items():
                own = [Bytes(payload, framing) for payload, framing in links.values()]
                total[tier] = sum(own, total.get(tier, Bytes()))
        return total

    def below(self, cell: int) -> tuple[Name, ...]:
        """Return who is connected to an edge, as it has said last."""
        return tuple(Name.of(name) for name in self.said.get(cell, {}).get("connected", ()))
