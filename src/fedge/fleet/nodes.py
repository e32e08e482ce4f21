"""Nodes are made here from a fleet file: each process builds the experiment from the same keys and plays its role.

The cloud, or the monitor where there is none, is the engine of an ordinary run, so it keeps the run folder.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from fedge.data.own_data import forget
from fedge.engine import Engine
from fedge.errors import DivergenceError, FleetError
from fedge.experiment.build import Experiment
from fedge.fleet import client as client_role
from fedge.fleet import edge as edge_role
from fedge.fleet import gossip, split_client
from fedge.fleet.cell import Cell
from fedge.fleet.client import Clients, only_samples_of
from fedge.fleet.cloud import Cloud
from fedge.fleet.edge import Edge
from fedge.fleet.entries import Keeping
from fedge.fleet.gossip import GossipEdge, neighbours, start_of
from fedge.fleet.greeting import greeting, only, vet
from fedge.fleet.kept import Kept
from fedge.fleet.memory import without_rows
from fedge.fleet.monitor import Monitor
from fedge.fleet.split import is_split
from fedge.fleet.split_cell import SplitCell
from fedge.fleet.split_client import SplitClients
from fedge.fleet.work import Work
from fedge.net.fleet import Fleet, Node
from fedge.net.gather import Patience
from fedge.net.hub import Hub
from fedge.net.log_file import note
from fedge.net.names import CLOUD, MONITOR, Name, client, edge
from fedge.net.status import Status
from fedge.net.tally import Tally
from fedge.net.uplink import Dialling, Uplink
from fedge.runner import identity
from fedge.runner.cache import ProgramCache
from fedge.runner.costs import Costs
from fedge.runner.listener import Audience, Listener
from fedge.runner.prepare import Given, ready
from fedge.runner.result import Result
from fedge.runner.run import run
from fedge.runner.signals import StopRequest

OVER = "the run is over"
MEMORY = "memory"  # in the folder of a node that remembers something
log = logging.getLogger(__name__)


@dataclass
class Site:
    """This is a process's place in a fleet, and the credentials that it shows."""

    fleet: Fleet
    node: Node
    own: Any = None

    @property
    def me(self) -> Name:
        return self.node.names[0]

    def __post_init__(self) -> None:
        self.hub: Hub | None = None

    def status(self) -> Status:
        """Say how this process is doing; a process of clients is dialled by nobody, and knows little."""
        return Status(self.me) if self.hub is None else self.hub.status()

    def patience(self, *, of_edges: bool) -> Patience:
        """Return how long this process waits for edges, or for clients."""
        if of_edges:
            return Patience(self.fleet.deadline.cloud, self.fleet.quorum.cloud)
        return Patience(self.fleet.deadline.edge, self.fleet.quorum.edge)

    def memory(self, work: Work, hello: Any, out: Path | None) -> Keeping:
        """Return where this process keeps what its nodes remember: in `out`, or else in its own folder."""
        folder = out or (None if self.own is None else self.own.folder)
        return Keeping(None if folder is None else folder / MEMORY, identity.digest_of(identity.canonical(hello)))

    def dialling(self, names: tuple[Name, ...], parent: Name, hello: Any, hub: Hub | None = None) -> Dialling:
        address = self.fleet.at(parent).address
        assert address is not None
        patience = max(60.0, self.fleet.deadline.cloud)
        return Dialling(names, parent, address, hello, self.own, patience, lambda: hub is not None and hub.leaving)

    def serving(self, hello: Any, *children: Name) -> Hub:
        """Make what serves these nodes, once `listen` is called."""
        self.hub = Hub(self.me, vet(hello, only(*children, where=self.me.words)), Tally(), self.own, children)
        return self.hub

    def listen(self) -> None:
        """Serve at this process's address; who comes back has its last messages ready, so they are awaited by now."""
        assert self.node.binds is not None
        assert self.hub is not None
        self.hub.listen(self.node.binds)
        note("listens", f"{self.me.words} listens at {self.node.binds}")


@contextlib.contextmanager
def built(site: Site, numbers: Sequence[int] = ()) -> Iterator[tuple[Work, dict[str, Any]]]:
    """Build the experiment that a fleet file names, with the samples of these clients alone; the block is in its
    precision."""
    given = Given(None, None, None)
    config = given.resolve(site.fleet.run)
    with ready(config, 1):
        made = given.experiment(config)
        hello = greeting(made, identity.objects(made, None))
        made = only_samples_of(without_rows(made), numbers)
        forget()
        yield Work(made), hello


def in_thread(work: Work, target: Callable[..., None], *given: Any) -> threading.Thread:
    """Run a role beside others, in the experiment's precision."""

    def play() -> None:
        with jax.enable_x64(True) if work.task.dtype == "float64" else contextlib.nullcontext():
            target(*given)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    return thread


# The cloud, or who listens in its place


class Leading(ProgramCache):
    """This gives a run the engine that a fleet is, in the place of a compiled one."""

    def __init__(self, site: Site, told: Callable[[Cloud | Monitor], None] = lambda engine: None) -> None:
        super().__init__()
        self._site, self._told = site, told
        self.hub: Hub | None = None
        self.leader: Cloud | Monitor | None = None
        self._hello: Any = None

    def fit(self, made: Experiment) -> Experiment:
        return without_rows(made)

    def engine(self, made: Experiment) -> Engine:
        work, site = Work(made), self._site
        children = [edge(cell) for cell in range(work.topology.cells)]
        if not work.algorithm.has_edges:
            children = [client(i) for i in range(work.topology.clients)]
        self._hello = greeting(made, identity.objects(made, None))
        self.hub = site.serving(self._hello, *children)
        patience = site.patience(of_edges=True)
        if work.algorithm.gossip is not None:
            self.leader = Monitor(work, self.hub, patience)
            self.leader.begin(0)
        else:
            self.leader = Cloud(work, self.hub, patience, site.patience(of_edges=False))
        site.listen()
        self._told(self.leader)
        return self.leader

    def remember(self, out: Path) -> None:
        """Let a cloud keep in the folder of its run what it must know when it is started again."""
        if isinstance(self.leader, Cloud):
            self.leader.remember(self._site.memory(self.leader.work, self._hello, out))


class Beside(Listener):
    """This tells who leads in which folder its run is kept."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def ready(self, experiment: Experiment, out: Path) -> None:
        self._leading.remember(out)


def lead(
    leading: Leading, fleet: Fleet, *, out: Path | None = None, resume: Path | None = None,
    listener: Listener | Sequence[Listener] | None = None, stop: StopRequest | None = None,
) -> Result:  # fmt: skip
    """Make the run that a fleet is there for, and tell its nodes when it is over."""
    over = False
    try:
        again = {"resume": resume} if resume is not None else {"out": out}
        listeners = [Beside(leading), *Audience(listener)]
        result = run(None if resume else dict(fleet.run), cache=leading, listener=listeners, stop=stop, **again)
        over = True
    except DivergenceError:
        over = True
        raise
    finally:
        if leading.hub is not None:  # nodes wait for a leader that was stopped
            leading.hub.stop(OVER if over else "the run was given up", quietly=not over)
    return result


# Edges and clients


def play_edge(site: Site, out: Path | None = None) -> None:
    """Stand between clients and the cloud, or beside other edges, until all is over."""
    with built(site) as (work, hello):
        cell, gossips = site.me.number, work.algorithm.gossip is not None
        if not work.algorithm.has_edges:
            raise FleetError(f"{work.algorithm.name} has no edges; its clients talk to the cloud")
        near = [edge(j) for j in neighbours(work, cell)] if gossips else []
        hub = site.serving(hello, *(client(int(i)) for i in work.topology.roster[cell]), *near)
        kept = site.memory(work, hello, out)
        own = (SplitCell if is_split(work) else Cell)(work, hub, cell, site.patience(of_edges=False), kept)
        if gossips:
            _gossip(site, own, hello, out)
            return
        node = Edge(own)
        site.listen()
        edge_role.serve(node, Uplink(site.dialling((site.me,), CLOUD, hello, hub), node.expect))


def _gossip(site: Site, cell: Cell, hello: Any, out: Path | None) -> None:
    """Be an edge that keeps its own model, in `out` if that is said."""
    work, me, hub = cell.work, site.me, cell.hub
    node = GossipEdge(cell, site.patience(of_edges=True), start_of(work, me.number))
    dial = [site.dialling((me,), edge(j), hello, hub) for j in neighbours(work, me.number) if j < me.number]
    to_monitor = site.dialling((me,), MONITOR, hello, hub) if site.fleet.monitor else None
    kept = None
    if out is not None:
        kept = Kept(out, identity.digest_of(identity.canonical(hello), str(me)))
    gossip.serve(node, Costs(work.made).last(), dial, to_monitor, kept, site.listen)


def play_clients(site: Site, out: Path | None = None) -> None:
    """Be the clients of a process until their edges say that all is over; each edge is served by a thread.

    What they remember is kept in `out`.
    """
    numbers = [name.number for name in site.node.names]
    with built(site, numbers) as (work, hello):
        cells = sorted({int(work.topology.cell[i]) for i in numbers})
        problems, threads, kept = list[BaseException](), list[threading.Thread](), site.memory(work, hello, out)
        for cell in cells:
            own = [i for i in numbers if work.topology.cell[i] == cell]
            parent = edge(cell) if work.algorithm.has_edges else CLOUD
            threads.append(in_thread(work, _serve_cell, work, own, site, parent, hello, problems, kept))
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]


def _serve_cell(
    work: Work, numbers: list[int], site: Site, parent: Name, hello: Any, problems: list[BaseException], kept: Keeping
) -> None:
    try:
        split = is_split(work)
        process = (SplitClients if split else Clients)(work, numbers, kept)
        uplink = Uplink(site.dialling(process.names, parent, hello), process.expect)
        (split_client if split else client_role).serve(process, uplink)
    except BaseException as problem:
        log.warning("clients of %s end: %s", parent.words, problem)  # at once: those of other cells may go on for long
        problems.append(problem)


def alone(fleet: Fleet) -> Fleet:
    """Return a fleet with a monitor, where it has no cloud and names none: someone must keep the run folder."""
    if fleet.cloud is not None or fleet.monitor is not None:
        return fleet
    taken = [int(node.address.rpartition(":")[2]) for node in fleet.nodes if node.address]
    return replace(fleet, nodes=(Node((MONITOR,), f"127.0.0.1:{max(taken) + 1}"), *fleet.nodes))
