"""A fleet whose nodes are threads of one process and talk over loopback, for tests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax

from fedge.fleet import client as client_role
from fedge.fleet import edge as edge_role
from fedge.fleet import gossip, split_client
from fedge.fleet.cell import Cell
from fedge.fleet.client import Clients
from fedge.fleet.cloud import Cloud
from fedge.fleet.edge import Edge
from fedge.fleet.entries import Keeping
from fedge.fleet.gossip import GossipEdge, neighbours, start_of
from fedge.fleet.greeting import greeting, only, vet
from fedge.fleet.memory import without_rows
from fedge.fleet.monitor import Monitor
from fedge.fleet.split import is_split
from fedge.fleet.split_cell import SplitCell
from fedge.fleet.split_client import SplitClients
from fedge.fleet.work import Work
from fedge.net.gather import Patience
from fedge.net.hub import Hub
from fedge.net.names import CLOUD, MONITOR, client, edge
from fedge.net.tally import Tally
from fedge.net.uplink import Dialling, Uplink

LOOPBACK = "127.0.0.1:0"
WAIT = Patience(deadline=300.0, quorum=1.0)  # nobody is lost unless a test loses them


@dataclass
class Fleet:
    work: Work
    cloud: Any
    rounds: int = 2
    hubs: dict[Any, Hub] = field(default_factory=dict)
    at: dict[Any, str] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    problems: list[BaseException] = field(default_factory=list)

    def start(self, target, *args):
        """Run a node in a thread of the experiment's precision."""
        double = self.work.task.dtype == "float64"

        def run():
            try:
                with jax.enable_x64(True) if double else contextlib.nullcontext():
                    target(*args)
            except BaseException as problem:
                self.problems.append(problem)
                for hub in self.hubs.values():  # nobody waits for this node
                    hub.stop("a node failed")

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()


def together(clients, per_process):
    """Divide the clients of a cell among processes."""
    return [clients[n : n + per_process] for n in range(0, len(clients), per_process)]


@contextlib.contextmanager
def fleet(
    made, *, per_process=2, patience=WAIT, clients_patience=WAIT, clients=Clients, gossips_at=None, keep=None, rounds=2
) -> Iterator[Fleet]:
    """Run edges and clients beside a cloud or a monitor, whose engine the caller drives."""
    work, hello, kept = Work(without_rows(made)), greeting(made, {}), Keeping(keep, "this run")
    cells, roster = range(work.topology.cells), [[int(i) for i in own] for own in work.topology.roster]
    gossips, split = work.algorithm.gossip is not None, is_split(work)
    found = Fleet(work, None, rounds)
    at = found.at

    def hub(name, children):
        found.hubs[name] = Hub(name, vet(hello, only(*children, where=name.words)), Tally())
        at[name] = f"127.0.0.1:{found.hubs[name].listen(LOOPBACK)}"
        return found.hubs[name]

    top = MONITOR if gossips else CLOUD
    hub(top, [edge(c) for c in cells] if work.algorithm.has_edges else map(client, roster[0]))
    engine = Monitor(work, found.hubs[top], patience) if gossips else Cloud(
        work, found.hubs[top], patience, clients_patience
    )  # fmt: skip
    found.cloud = engine
    if not gossips:
        engine.remember(kept)
    for cell in cells if work.algorithm.has_edges else ():
        below = hub(edge(cell), children_of(work, cell))
        own = (SplitCell if split else Cell)(work, below, cell, clients_patience, kept)
        found.cells.append(own)
        if gossips:
            found.start(gossips_at or gossip_edge, found, own, patience, dict(at), hello)
            continue
        node = Edge(own)
        found.start(edge_role.serve, node, Uplink(Dialling((edge(cell),), CLOUD, at[CLOUD], hello), node.expect))
    for cell in cells:
        parent = edge(cell) if work.algorithm.has_edges else CLOUD
        for numbers in together(roster[cell], per_process):
            process = (SplitClients if split else clients)(work, numbers, kept)
            role = split_client if split else client_role
            found.start(role.serve, process, Uplink(Dialling(process.names, parent, at[parent], hello), process.expect))
    try:
        yield found
    finally:
        found.hubs[top].stop("the test is over")
        for thread in found.threads:
            thread.join(60)
        assert not [t for t in found.threads if t.is_alive()]
        if found.problems:
            raise found.problems[0]


def children_of(work, cell):
    """Name who may dial an edge."""
    own = [client(int(i)) for i in work.topology.roster[cell]]
    return [*own, *map(edge, neighbours(work, cell) if work.algorithm.gossip is not None else ())]


def vet_of(work, hello, me):
    return vet(hello, only(*children_of(work, me.number), where=me.words))


def gossip_edge(found, cell, patience, at, hello):
    """Run an edge that dials the monitor and the neighbours that were there before it."""
    me = cell.hub.me
    node = GossipEdge(cell, patience, start_of(found.work, me.number))
    lower = [edge(j) for j in neighbours(found.work, me.number) if j < me.number]
    dial = [Dialling((me,), name, at[name], hello, given_up=lambda: cell.hub.leaving) for name in (*lower, MONITOR)]
    gossip.serve(node, found.rounds, dial[:-1], dial[-1])
