"""The clock counts simulated seconds: equal devices follow SD-FEEL's latency model, unequal ones event after event.

    t_c   = cycles_per_bit × bits of a minibatch / cpu_hz      one local step
    t_u   = bits of a model / uplink_bps                       client → edge
    t_ss  = bits of a model / edge_bps                         edge → neighbouring edge
    t_cl  = bits of a model / cloud_bps                        edge → cloud, or client → cloud where there are no edges

    SD-FEEL   τ2(τ1 t_c + t_u) + α t_ss       HierFAVG  τ2(τ1 t_c + t_u) + t_cl       FedAvg  τ t_c + t_cl
    HierSFL   τ2[τ1(φ t_c + (1−φ) t_c·cpu_hz/edge_hz + 2 t_act) + t_u of the client half] + t_cl; φ is the client's
              share of the multiply-adds, t_act = bits of a minibatch's activations / uplink_bps; labels take no time

With HIST a client's model is smaller, and so are its steps (by multiply-adds) and transfers: 1/N of HierFAVG's time.

Each edge keeps its own time: it waits for its slowest client at every edge round, for all edges at a cloud average, and
for its neighbours only at a gossip exchange. Downlinks take no time, as in the papers, unless `downlink` is set.
Running statistics travel too and take time unless they are `unbilled`: the papers' M counts trainable parameters only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.core.keys import Purpose, host_rng
from fedge.cost.ledger import Ledger
from fedge.cost.waits import Waits

Times = NDArray[Any]
SHANNON = 1e6 * math.log2(1 + 50)  # 1 MHz at SNR 50 (17 dB): 5.6724 Mbit/s


@dataclass(frozen=True)
class Rates:
    """Rates describe a deployment. Spreads of 0 make all devices and links equal; otherwise each is slower or faster by
    a factor exp(spread × normal), drawn once per device or link, and a straggling client's work takes
    1 + Exp(straggle) times as long, drawn for each client and edge round."""

    step_seconds: float  # t_c of a client at par
    edge_speed: float = 1.0  # of an edge's processor, over a client's at par
    uplink_bps: float = SHANNON
    edge_bps: float = 10 * SHANNON
    cloud_bps: float = SHANNON / 10
    device_spread: float = 0.0
    link_spread: float = 0.0
    straggle: float = 0.0
    downlink: bool = False
    unbilled: frozenset[str] = frozenset()  # paths of the model that are sent and take no time

    @property
    def equal(self) -> bool:
        return not (self.device_spread or self.link_spread or self.straggle)


def timed_bits(
    ledger: Ledger, unbilled: frozenset[str], size: NDArray[np.int64], *, client: bool = False
) -> Times:  # fmt: skip
    """Return the bits that take time on a link, of so many bytes of each cell's model or of its clients' part."""
    bits = 8.0 * size
    for stack in ledger.stacks if unbilled else ():
        free = [p for p in unbilled if not (client and ledger.at_edge(p))]
        bits[list(stack.ids)] -= sum(8 * stack.shapes[p].size * stack.shapes[p].dtype.itemsize for p in free)
    return bits


def late_factors(seed: int, number: int, clients: int, straggle: float) -> Times:
    """Draw by how much the work of each client takes longer in edge round `number`."""
    if not straggle:
        return np.ones(clients)
    return 1 + straggle * host_rng(seed, Purpose.DELAY, number + 1).standard_exponential(clients)


@dataclass(frozen=True, eq=False)
class Clock:
    ledger: Ledger
    rates: Rates
    seed: int = 0
    work: float | Times = 1.0  # a client's step as a share of one on the whole model; one number, or one per cell

    @cached_property
    def slowness(self) -> tuple[Times, Times, Times, dict[tuple[int, int], float]]:
        """Draw factors on time: each client's processor and link, each edge's links to cloud and neighbours."""
        topology, r = self.ledger.algorithm.topology, self.rates
        links = self.ledger.edge_links
        rng = host_rng(self.seed, Purpose.DELAY)
        device = np.exp(r.device_spread * rng.standard_normal(topology.clients))
        uplink = np.exp(r.link_spread * rng.standard_normal(topology.clients))
        backhaul = np.exp(r.link_spread * rng.standard_normal(topology.cells))
        between = np.exp(r.link_spread * rng.standard_normal(len(links)))
        return device, uplink, backhaul, dict(zip(links, between.tolist(), strict=True))

    @property
    def equal(self) -> bool:
        """Say whether all devices and links are equal, so that one round tells of all others of its size."""
        return self.rates.equal

    @property
    def start(self) -> Times:
        return np.zeros(self.ledger.algorithm.topology.cells)

    def advance(self, ready: Times, index: int, waits: Waits | None = None) -> Times:
        """Return when each edge has finished global round `index`, if it could begin at `ready`; tell `waits` of it."""
        algorithm, schedule, r = self.ledger.algorithm, self.ledger.algorithm.schedule, self.rates
        own, far = self.ledger.client_bytes(index), self.ledger.edge_bytes(index)
        rate = r.uplink_bps if algorithm.has_edges else r.cloud_bps
        transfer = self._bits(own.up, client=True) / rate
        if r.downlink:
            transfer = transfer + self._bits(own.down, client=True) / rate
        ready = ready + (8.0 * own.once / rate if r.downlink else 0.0)
        same = self._edge_round(0, transfer) if r.equal else None
        for a in range(schedule.edge_rounds):
            number = index * schedule.edge_rounds + a
            ready = ready + (self._edge_round(number, transfer, waits) if same is None else same)
        if algorithm.gossip is not None:
            transfer = self._bits(self.ledger.cell_bytes(index)) / r.edge_bps
            in_step = r.equal and len(ready) > 1 and np.ptp(ready) == np.ptp(transfer) == 0
            for _ in range(algorithm.gossip.steps):  # edges that are in step stay in step
                before = ready
                ready = ready + transfer if in_step else self._exchange(ready, transfer)
                if waits is not None:
                    waits.between(before, ready)
        elif algorithm.has_edges:
            bits = self._bits(far.up) + (self._bits(far.down) if r.downlink else 0)
            arrived = ready + bits / r.cloud_bps * self.slowness[2]
            if waits is not None:
                waits.at_cloud(arrived)
            ready = np.full_like(ready, arrived.max())
        return ready

    def _bits(self, size: NDArray[np.int64], *, client: bool = False) -> Times:
        return timed_bits(self.ledger, self.rates.unbilled, size, client=client)

    def _edge_round(self, number: int, transfer: Times, waits: Waits | None = None) -> Times:
        """Return how long each cell takes: its slowest participant's steps and upload."""
        steps, topology = self.ledger.algorithm.schedule.local_steps, self.ledger.algorithm.topology
        work = self.rates.step_seconds * (self.work * np.ones(topology.cells))
        up = down = at_edge = 0.0
        if (cut := self.ledger.cut) is not None:
            at_edge = (1 - cut.client_work) * self.rates.step_seconds / self.rates.edge_speed
            work, up, down = (
                cut.client_work * work,
                8 * cut.up / self.rates.uplink_bps,
                8 * cut.down / self.rates.uplink_bps,
            )
        if self.rates.equal:
            return steps * (work + at_edge + up + down) + transfer
        device, uplink, _, _ = self.slowness
        late = late_factors(self.seed, number, len(device), self.rates.straggle)
        step, last = work[topology.cell] * device * late, transfer[topology.cell] * uplink
        present = self.ledger.participants(number)
        if cut is None:
            each = steps * step + last
            cells = np.array([each[own].max() for own in present])
        else:
            # The edge waits for all activations at every step; a gradient's way back is part of its client's next step.
            first, next_, last = step + up * uplink, step + (up + down) * uplink, last + down * uplink
            each = first + (steps - 1) * next_ + steps * at_edge + last
            cells = np.array(
                [
                    first[own].max() + (steps - 1) * next_[own].max() + steps * at_edge + last[own].max()
                    for own in present
                ]
            )
        if waits is not None:
            waits.in_cells(each, present, cells)
        return cells

    def _exchange(self, ready: Times, transfer: Times) -> Times:
        """Make one gossip exchange: an edge goes on when its neighbours' models are there."""
        slowness = self.slowness[3]
        if not slowness:
            return ready
        sender, receiver = np.array(list(slowness)).T
        after = ready.copy()
        np.maximum.at(after, receiver, ready[sender] + transfer[sender] * np.array(list(slowness.values())))
        return after
