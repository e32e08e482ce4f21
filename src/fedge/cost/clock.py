"""Simulated seconds. With equal devices this is SD-FEEL's latency model; with unequal ones events are followed.

    t_c   = cycles_per_bit × bits of a minibatch / cpu_hz      one local step
    t_u   = bits of a model / uplink_bps                       client → edge
    t_ss  = bits of a model / edge_bps                         edge → neighbouring edge
    t_cl  = bits of a model / cloud_bps                        edge → cloud, or client → cloud where there are no edges

    SD-FEEL   τ2(τ1 t_c + t_u) + α t_ss       HierFAVG  τ2(τ1 t_c + t_u) + t_cl       FedAvg  τ t_c + t_cl

Each edge keeps its own time: it waits for its slowest client at every edge round, for all edges at a cloud average, and
for its neighbours only at a gossip exchange. Downlinks take no time, as in the papers, unless `downlink` is set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.core.contract import Cloud, Direct, Gossip
from fedge.core.keys import Purpose, host_rng
from fedge.cost.ledger import Ledger, directed

Times = NDArray[Any]
SHANNON = 1e6 * math.log2(1 + 50)  # 1 MHz at SNR 50 (17 dB): 5.6724 Mbit/s


@dataclass(frozen=True)
class Rates:
    """A deployment. Spreads of 0 make all devices and links equal; otherwise each is slower or faster by a factor
    exp(spread × normal), drawn once per device or link, and a straggling client's work takes 1 + Exp(straggle) times as
    long, drawn for each client and edge round."""

    step_seconds: float  # t_c of a client at par
    uplink_bps: float = SHANNON
    edge_bps: float = 10 * SHANNON
    cloud_bps: float = SHANNON / 10
    device_spread: float = 0.0
    link_spread: float = 0.0
    straggle: float = 0.0
    downlink: bool = False

    @property
    def equal(self) -> bool:
        return not (self.device_spread or self.link_spread or self.straggle)


@dataclass(frozen=True, eq=False)
class Clock:
    ledger: Ledger
    rates: Rates
    seed: int = 0

    @cached_property
    def _slowness(self) -> tuple[Times, Times, Times, dict[tuple[int, int], float]]:
        """Factors on time: each client's processor and link, each edge's link to the cloud and to its neighbours."""
        topology, r = self.ledger.algorithm.topology, self.rates
        exchange = self.ledger.algorithm.exchange
        links = directed(exchange.graph) if isinstance(exchange, Gossip) else []
        rng = host_rng(self.seed, Purpose.DELAY)
        device = np.exp(r.device_spread * rng.standard_normal(topology.clients))
        uplink = np.exp(r.link_spread * rng.standard_normal(topology.clients))
        backhaul = np.exp(r.link_spread * rng.standard_normal(topology.cells))
        between = np.exp(r.link_spread * rng.standard_normal(len(links)))
        return device, uplink, backhaul, dict(zip(links, between.tolist(), strict=True))

    @property
    def start(self) -> Times:
        return np.zeros(self.ledger.algorithm.topology.cells)

    def advance(self, ready: Times, index: int) -> Times:
        """When each edge has finished global round `index`, if it could begin at `ready`."""
        algorithm, schedule, r = self.ledger.algorithm, self.ledger.algorithm.schedule, self.rates
        bits = 8.0 * self.ledger.cell_bytes(index)
        rate = r.cloud_bps if isinstance(algorithm.exchange, Direct) else r.uplink_bps
        ways = 2 if r.downlink else 1
        for a in range(schedule.edge_rounds):
            ready = ready + self._edge_round(index * schedule.edge_rounds + a, ways * bits / rate)
        match algorithm.exchange:
            case Direct():
                return ready
            case Cloud():
                return np.full_like(ready, (ready + ways * bits / r.cloud_bps * self._slowness[2]).max())
            case Gossip(steps=steps):
                for _ in range(steps):
                    ready = self._exchange(ready, bits / r.edge_bps)
                return ready

    def _edge_round(self, number: int, transfer: Times) -> Times:
        """How long each cell takes: its slowest participant's steps and upload."""
        work = self.ledger.algorithm.schedule.local_steps * self.rates.step_seconds
        if self.rates.equal:
            return work + transfer
        rng = host_rng(self.seed, Purpose.DELAY, number + 1)
        device, uplink, _, _ = self._slowness
        late = 1 + self.rates.straggle * rng.standard_exponential(len(device))
        taken = work * device * late + transfer[self.ledger.algorithm.topology.cell] * uplink
        return np.array([taken[own].max() for own in self.ledger.participants(number)])

    def _exchange(self, ready: Times, transfer: Times) -> Times:
        """One gossip exchange: an edge goes on when its neighbours' models are there."""
        after = ready.copy()
        for (sender, receiver), slowness in self._slowness[3].items():
            after[receiver] = max(after[receiver], ready[sender] + transfer[sender] * slowness)
        return after
