"""Who waits for whom: the clock tells this what it hears of, and it keeps the account.

client    waits from when its update is at the edge until the last one of its cell is there, in each edge round
edge      waits from when its model is in the cloud until the last one is there; where edges exchange models, from
          when it is done with its clients until its last neighbour's model is there, the way of it included
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Waits:
    """Sums over the rounds so far."""

    client_busy: Times
    client_waits: Times
    client_last: NDArray[np.int64]  # edge rounds in which the cell waited for this client
    edge_waits: Times
    edge_last: NDArray[np.int64]  # global rounds in which the cloud waited for this edge

    @classmethod
    def of(cls, clients: int, cells: int) -> Waits:
        count = np.int64
        return cls(
            np.zeros(clients), np.zeros(clients), np.zeros(clients, count), np.zeros(cells), np.zeros(cells, count)
        )

    def in_cells(self, each: Times, present: Sequence[NDArray[np.int32]], cells: Times) -> None:
        """Hear of an edge round: what each client took, who took part, and what each cell took."""
        for own, whole in zip(present, cells, strict=True):
            self.client_busy[own] += each[own]
            self.client_waits[own] += np.maximum(whole - each[own], 0)
            if np.ptp(each[own]) > 0:
                self.client_last[own[each[own].argmax()]] += 1

    def at_cloud(self, arrived: Times) -> None:
        """Hear of a cloud average: when each edge's model was there."""
        self.edge_waits[:] += arrived.max() - arrived
        if np.ptp(arrived) > 0:
            self.edge_last[arrived.argmax()] += 1

    def between(self, before: Times, after: Times) -> None:
        """Hear of a gossip exchange: when edges were ready for it, and when they went on."""
        self.edge_waits[:] += after - before

    def times(self, rounds: int) -> Waits:
        """Return the account of so many rounds that are all like the one heard of."""
        return Waits(
            rounds * self.client_busy, rounds * self.client_waits, rounds * self.client_last,
            rounds * self.edge_waits, rounds * self.edge_last,
        )  # fmt: skip
