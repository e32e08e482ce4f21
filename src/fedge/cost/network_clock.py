"""The clock of a network as measured: transfers share links, event after event, and devices that are off pause.

An edge round of a cell is a few stages, each of which ends when the last of its clients is there:

    whole model    [model down] · τ1 steps · update up
    split model    [half down] · φ of a step · activations up; then τ1 − 1 times: the edge's step · gradients down · φ
                   of a step · activations up; at last: the edge's step · gradients down · half up

With FedAvg all clients are one cell, whose stage goes through their edges' links to the cloud. Then edges send to the
cloud and get its model, or exchange models along their links: an edge goes on when its neighbours' models are there and
its own are sent. Downlinks in brackets take time where they are asked for. With equal devices and endless shared links
this is the closed form of `clock.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedge.cost.clock import Clock, Times, late_factors, timed_bits
from fedge.cost.events import Activities, Course, limit_of
from fedge.cost.ledger import Ledger
from fedge.cost.network import Both, Client, Edge, Network, Processor
from fedge.cost.path import Path, Span
from fedge.cost.sharing import OWN
from fedge.cost.waits import Waits

KEPT = 512  # stages that are remembered
Watching = Callable[[Activities, float, float, list[int], Times], None]
"""It hears of each span of time in which no rate changes: (what goes on, from, until, transfers under way, rates)."""


class Steps(NamedTuple):
    """These are the seconds that a step on the whole model takes each client and each edge."""

    client: Times
    edge: Times


class SharedLink(NamedTuple):
    """This names a link that several transfers may be on: an edge's with its clients, its line, or the backhaul."""

    kind: Literal["clients", "line", "backhaul"]
    way: str  # up or down
    edge: int = -1


class Stage(NamedTuple):
    """This is what each of some clients does between two moments at which all of them meet."""

    down: Times  # bits
    work: Times  # seconds
    up: Times  # bits


class Outcome(NamedTuple):
    """This is how long each took from the stage's beginning, and what the last one did in that time."""

    each: Times
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        return float(self.each.max())


@dataclass(frozen=True, eq=False)
class NetworkClock:
    ledger: Ledger
    network: Network
    step: Steps
    straggle: float = 0.0
    downlink: bool = True
    unbilled: frozenset[str] = frozenset()
    seed: int = 0
    work: float | Times = 1.0  # a client's step as a share of one on the whole model; one number, or one per cell
    watch: Watching | None = None
    _known: dict[Any, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", {})  # `replace` would hand on what is known of another network
        if self.ledger.algorithm.gossip is not None:
            self.network.require_links(self.ledger.edge_links)
        elif self.ledger.algorithm.has_edges:
            self.network.require_cloud()

    @property
    def equal(self) -> bool:
        """Say whether one round tells of all others; that is not known of a network before they are simulated."""
        return False

    @property
    def start(self) -> Times:
        return np.zeros(self.ledger.algorithm.topology.cells)

    def advance(
        self, ready: Times, index: int, waits: Waits | None = None, paths: list[Path] | None = None
    ) -> Times:  # fmt: skip
        """Return when each edge has finished global round `index`, if it could begin at `ready`; tell `waits` of it,
        and the cell's own of `paths` what its time was spent on."""
        algorithm, cells = self.ledger.algorithm, self.ledger.algorithm.topology.cells
        heard = [Path() for _ in range(cells)] if paths is None else paths
        ready = ready.copy()
        for a in range(algorithm.schedule.edge_rounds):
            self._edge_rounds(ready, index, a, waits, heard)
        if algorithm.gossip is not None:
            bits = timed_bits(self.ledger, self.unbilled, self.ledger.cell_bytes(index))
            for _ in range(algorithm.gossip.steps):
                before = ready
                ready = self._exchange(ready, bits, paths)
                if waits is not None:
                    waits.between(before, ready)
        elif algorithm.has_edges:
            ready = self._through_cloud(ready, index, waits, heard)
        return ready

    def _edge_rounds(self, ready: Times, index: int, a: int, waits: Waits | None, paths: list[Path]) -> None:
        """Let every cell make its edge round number `a` of global round `index`."""
        topology, own = self.ledger.algorithm.topology, self.ledger.client_bytes(index)
        up, down, once = (timed_bits(self.ledger, self.unbilled, own.up, client=True),
                          timed_bits(self.ledger, self.unbilled, own.down, client=True), 8.0 * own.once)  # fmt: skip
        if not self.downlink:
            down, once = np.zeros_like(up), np.zeros_like(up)
        number = index * self.ledger.algorithm.schedule.edge_rounds + a
        late = late_factors(self.seed, number, topology.clients, self.straggle)
        share = self.work * np.ones(topology.cells)
        each, present, took = np.zeros(topology.clients), self.ledger.participants(number), np.zeros(topology.cells)
        for d, members in enumerate(present):
            first = down[d] + (once[d] if a == 0 else 0.0)
            work = self.step.client[members] * share[d] * late[members]
            each[members], took[d] = self._cell(d, members, float(ready[d]), first, work, float(up[d]), paths[d])
        if waits is not None:
            waits.in_cells(each, present, took)
        ready += took

    def _cell(
        self, d: int, members: NDArray[np.int32], begin: float, down: float, work: Times, up: float, path: Path
    ) -> tuple[Times, float]:  # fmt: skip
        """Return how long each client of a cell is busy in an edge round that begins then, and how long it takes."""
        steps, cut, ones = self.ledger.algorithm.schedule.local_steps, self.ledger.cut, np.ones(len(members))
        if cut is None:
            outcome = self.stage(members, begin, Stage(down * ones, steps * work, up * ones))
            path.add(outcome.spans)
            return outcome.each, outcome.seconds
        part, sent, back = cut.client_work * work, 8.0 * cut.up * ones, 8.0 * cut.down * ones
        first, next_, last = Stage(down * ones, part, sent), Stage(back, part, sent), Stage(back, 0 * part, up * ones)
        alike = 1 if self._depends_on_time(members) else max(steps - 1, 1)  # stages of which one tells of all
        at_edge = (1 - cut.client_work) * float(self.step.edge[d])
        each, took = np.zeros(len(members)), 0.0
        for stage, wait, times in [
            (first, 0.0, 1),
            *[(next_, at_edge, alike)] * ((steps - 1) // alike),
            (last, at_edge, 1),
        ]:
            outcome = self.stage(members, begin + took + wait, stage)
            path.add((Span(self._edge(d), "computes", wait), *outcome.spans), times)
            each += times * (wait + outcome.each)
            took += times * (wait + outcome.seconds)
        return each, took

    @cached_property
    def _leaves(self) -> NDArray[np.bool_]:
        """Say of each client whether it is off at times."""
        return np.array([client.on is not None for client in self.network.clients])

    def _depends_on_time(self, members: NDArray[np.int32]) -> bool:
        """Say whether it matters when these clients begin, or somebody wants to hear of every moment."""
        return self.watch is not None or bool(self._leaves[members].any())

    def stage(self, members: NDArray[np.int32], begin: float, stage: Stage) -> Outcome:
        """Let these clients begin at one moment, and return how it went; what was asked before is remembered."""
        if self._depends_on_time(members):
            return self._simulate(members, begin, stage)
        key = (members.tobytes(), *(part.tobytes() for part in stage))
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = self._simulate(members, 0.0, stage)
        return self._known[key]

    def _simulate(self, members: NDArray[np.int32], begin: float, stage: Stage) -> Outcome:
        net = Activities(self.capacity)
        start, chains = net.at(begin), []
        for i, down, work, up in zip(members.tolist(), *(part.tolist() for part in stage), strict=True):
            client, rate = self.network.clients[i], self._own_rate(i)
            got = net.send(down, rate.down, self._route(i, "down"), [start], client.on)
            done = net.work(work, [got], client.on)
            chains.append((got, done, net.send(up, rate.up, self._route(i, "up"), [done], client.on)))
        course = self._follow(net)
        each = course.end[[sent for *_, sent in chains]] - begin
        last = int(each.argmax())
        who = f"client {self.network.clients[members[last]].name}"
        return Outcome(each, tuple(span for one in chains[last] for span in self._spans(net, course, one, who)))

    def _follow(self, net: Activities) -> Course:
        return net.follow(None if self.watch is None else partial(self.watch, net))

    def _own_rate(self, i: int) -> Both:
        client = self.network.clients[i]
        return client.rate if self.ledger.algorithm.has_edges else client.rate.within(client.to_cloud)

    def _route(self, i: int, way: str) -> tuple[SharedLink, ...]:
        """List the shared links between a client and what it talks to."""
        d = self.network.clients[i].cell
        far = () if self.ledger.algorithm.has_edges else (SharedLink("line", way, d), SharedLink("backhaul", way))
        return (SharedLink("clients", way, d), *far)

    @cached_property
    def capacity(self) -> dict[Hashable, float]:
        """Return the rate of each shared link."""
        found: dict[Hashable, float] = {}
        for n, way in enumerate(Both._fields):
            found[SharedLink("backhaul", way)] = self.network.backhaul[n]
            for d, edge in enumerate(self.network.edges):
                found[SharedLink("clients", way, d)], found[SharedLink("line", way, d)] = edge.shared[n], edge.line[n]
        return found

    def _through_cloud(self, ready: Times, index: int, waits: Waits | None, paths: list[Path]) -> Times:
        """Let all edges send their models to the cloud, and get the next one where downlinks take time."""
        far = self.ledger.edge_bytes(index)
        up, down = (timed_bits(self.ledger, self.unbilled, size) for size in (far.up, far.down))
        arrived, spans = self.with_cloud(ready, up, "up")
        if waits is not None:
            waits.at_cloud(arrived)
        last = int(arrived.argmax())
        paths[last].add((spans[last],))
        paths[:] = [paths[last].copy() for _ in paths]
        after = np.full_like(arrived, arrived.max())
        if not self.downlink:
            return after
        after, spans = self.with_cloud(after, down, "down")
        for path, span in zip(paths, spans, strict=True):
            path.add((span,))
        return after

    def with_cloud(self, ready: Times, bits: Times, way: str) -> tuple[Times, list[Span]]:
        net, n, shared = Activities(self.capacity), Both._fields.index(way), SharedLink("backhaul", way)
        sent = [
            net.send(float(bits[d]), edge.to_cloud[n], (SharedLink("line", way, d), shared), [net.at(float(ready[d]))])
            for d, edge in enumerate(self.network.edges)
        ]
        course = self._follow(net)
        return course.end[sent], [self._spans(net, course, one, self._edge(d))[1] for d, one in enumerate(sent)]

    @cached_property
    def _links(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Times]:
        """Return the sender, the receiver and the rate of each direction of a link."""
        pairs, rates = self.ledger.edge_links, self.network.links or {}
        sender, receiver = np.array(pairs, np.int64).reshape(-1, 2).T
        return sender, receiver, np.array([rates[pair] for pair in pairs])

    def _exchange(self, ready: Times, bits: Times, paths: list[Path] | None) -> Times:
        """Make one gossip exchange."""
        sender, receiver, rate = self._links
        there, after = ready[sender] + bits[sender] / rate, ready.copy()
        np.maximum.at(after, receiver, there)
        np.maximum.at(after, sender, there)
        if paths is not None:
            before = [path.copy() for path in paths]
            for d in np.flatnonzero(after > ready).tolist():
                last = int(np.argmax(np.where((sender == d) | (receiver == d), there, -np.inf)))
                a, b = int(sender[last]), int(receiver[last])
                names = f"{self.network.edges[a].name} → {self.network.edges[b].name}"
                paths[d] = before[a].copy()
                paths[d].add((Span(f"link {names}", "sends", float(there[last] - ready[a])),))
        return after

    def _edge(self, d: int) -> str:
        return f"edge {self.network.edges[d].name}"

    def _spans(self, net: Activities, course: Course, id_: int, who: str) -> tuple[Span, ...]:
        """Say who or what it was that an activity took its time for, and for how long its device was off."""
        activity, begin, end = net.all[id_], float(course.begin[id_]), float(course.end[id_])
        off = 0.0 if activity.owner is None else activity.owner.off_between(begin, end)
        pause, seconds = Span(who, "is off", off), end - begin - off
        if activity.rate is None:
            return pause, Span(who, "computes", seconds)
        held = course.held[id_].copy()
        held[OWN] -= off
        limit = limit_of(activity, held)
        if not isinstance(limit, SharedLink):
            return pause, Span(who, "sends and receives", seconds)
        if limit.kind == "backhaul":
            return pause, Span("backhaul", f"is full ({limit.way})", seconds)
        does = "is full on the cloud's side" if limit.kind == "line" else "is full on its clients' side"
        return pause, Span(self._edge(limit.edge), f"{does} ({limit.way})", seconds)


def as_network(clock: Clock) -> NetworkClock:
    """Return the deployment of a clock as a network: each device and link has the speed drawn for it."""
    topology, rates, ledger = clock.ledger.algorithm.topology, clock.rates, clock.ledger
    device, uplink, backhaul, between = clock.slowness
    rate = rates.uplink_bps if ledger.algorithm.has_edges else rates.cloud_bps
    network = Network(
        "as the keys say",
        tuple(
            Client(str(i), d, Processor(), Both(rate / uplink[i], rate / uplink[i]))
            for i, d in enumerate(topology.cell.tolist())
        ),
        tuple(Edge(str(d), to_cloud=Both(*[rates.cloud_bps / backhaul[d]] * 2)) for d in range(topology.cells)),
        links={link: rates.edge_bps / slowness for link, slowness in between.items()},
    )
    steps = Steps(rates.step_seconds * device, np.full(topology.cells, rates.step_seconds / rates.edge_speed))
    return NetworkClock(
        ledger, network, steps, rates.straggle, rates.downlink, rates.unbilled, clock.seed, clock.work
    )  # fmt: skip
