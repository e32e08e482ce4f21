"""A network as measured: each client, edge and link has rates of its own, and some links are shared.

    client → edge     the client's own rate, then what the edge's clients share
    client → cloud    the client's own rate there, then what its edge's clients share, the edge's line, the backhaul
    edge → cloud      the edge's own rate to the cloud, then its line, then the backhaul
    edge → edge       the rate of the link between them, in that direction

and back alike. A shared link without a rate is endless: whoever is on it takes nothing from the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedge.cost.availability import Availability
from fedge.errors import ConfigError


@dataclass(frozen=True)
class Processor:
    """A processor makes a step in so many measured seconds, or in so many cycles for each bit of a minibatch."""

    hz: float | None = None
    cycles_per_bit: float | None = None  # None: as the run says
    step_seconds: float | None = None

    def seconds(self, bits: float, cycles_per_bit: float) -> float | None:
        """Return how long a step on the whole model takes; None of a processor that nothing is known of."""
        if self.step_seconds is not None:
            return self.step_seconds
        return None if self.hz is None else (self.cycles_per_bit or cycles_per_bit) * bits / self.hz


class Both(NamedTuple):
    """These are the rates of a link in bit/s, towards the cloud and back."""

    up: float = math.inf
    down: float = math.inf

    def within(self, other: Both) -> Both:
        return Both(min(self.up, other.up), min(self.down, other.down))


FREE, UNKNOWN = Both(), Processor()


@dataclass(frozen=True)
class Client:
    name: str
    cell: int
    processor: Processor
    rate: Both  # its own
    to_cloud: Both = FREE  # its own, where it talks to the cloud; no faster than `rate`
    memory: float = math.inf  # bytes
    on: Availability | None = None  # None: always


@dataclass(frozen=True)
class Edge:
    name: str
    processor: Processor = UNKNOWN
    shared: Both = FREE  # by its clients
    line: Both = FREE  # to the cloud, shared by all that its cell sends there
    to_cloud: Both = FREE  # its own
    memory: float = math.inf


@dataclass(frozen=True)
class Network:
    """Client n is client number n of a run, and edge n has cell n. `links` has both directions of each link."""

    name: str
    clients: tuple[Client, ...]
    edges: tuple[Edge, ...]
    backhaul: Both = FREE  # shared by all edges
    links: Mapping[tuple[int, int], float] | None = None  # (from, to) → bit/s

    @cached_property
    def cell(self) -> NDArray[np.int32]:
        return np.array([client.cell for client in self.clients], np.int32)

    @property
    def graph(self) -> str:
        """Write the links between edges out, as the key `graph` takes them."""
        return " ".join(f"{a}-{b}" for a, b in sorted(self.links or {}) if a < b)

    @property
    def memories(self) -> list[float]:
        """List the memory of each client and each edge."""
        return [*(client.memory for client in self.clients), *(edge.memory for edge in self.edges)]

    def step_seconds(self, bits: float, cycles_per_bit: float) -> NDArray[np.float64]:
        """Return how long each client's step on the whole model takes."""
        return np.array([client.processor.seconds(bits, cycles_per_bit) for client in self.clients], np.float64)

    def edge_step_seconds(self, bits: float, cycles_per_bit: float) -> NDArray[np.float64]:
        """Return how long the same step would take each edge; a split model needs to know."""
        found = []
        for edge in self.edges:
            seconds = edge.processor.seconds(bits, cycles_per_bit)
            if seconds is None:
                raise ConfigError(f"network {self.name} does not say how fast edge '{edge.name}' computes, and a split "
                                  "model has a half there; give it cpu_hz or step_seconds")  # fmt: skip
            found.append(seconds)
        return np.array(found)

    def require_cloud(self) -> None:
        """Refuse a network in which something would reach the cloud in no time."""
        for edge in self.edges:
            if math.inf in edge.to_cloud.within(edge.line).within(self.backhaul):
                raise ConfigError(
                    f"network {self.name} has no rates from edge '{edge.name}' to the cloud and back; give the edge "
                    "backhaul_up_bps or cloud_up_bps, or give [backhaul] up_bps (down_bps follows up_bps)"
                )

    def require_links(self, pairs: list[tuple[int, int]]) -> None:
        """Refuse a graph with a link that the network lacks."""
        missing = next((pair for pair in pairs if pair not in (self.links or {})), None)
        if missing:
            a, b = (self.edges[n].name for n in missing)
            raise ConfigError(
                f"the graph links edges '{a}' and '{b}', and network {self.name} has no link between them; leave graph "
                "out to use those it has, or add that link"
            )
