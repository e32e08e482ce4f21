"""A whole fleet on one machine: this process leads, the others are its children and end with it.

A child reads from a pipe that only its parent holds: when that ends, however it ends, so does the child.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fedge.errors import FleetError
from fedge.experiment.build import Experiment
from fedge.fleet import folders
from fedge.fleet.account import Account, account_of
from fedge.fleet.leader import Leader
from fedge.fleet.nodes import Leading, Site, alone, lead
from fedge.fleet.temporary import WITH_PARENT, Temporary, temporary
from fedge.fleet.work import Work
from fedge.net.fleet import Fleet, Node
from fedge.net.gather import LeavingError, Patience
from fedge.net.identity import Credentials
from fedge.net.names import Name, client, edge
from fedge.runner import files
from fedge.runner.listener import Listener
from fedge.runner.result import Result
from fedge.runner.signals import StopRequest

ACCOUNT = "fleet.json"  # in the run folder
LEAVE = 5.0  # seconds for children to end by themselves, once they were told; they hold nothing that would be lost
LOOK = 0.2
log = logging.getLogger(__name__)
Ended = Callable[[str, set[Name]], set[Name]]
"""(what has ended and why, all that are lost) → others that are then of no use"""


def end_with_parent(left: Temporary) -> None:
    """End this process as soon as its parent has ended, and standard input with it; a parent that was killed has left
    the keys that it made for this time only, if it made any."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        left.remove()
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def up(
    fleet: Fleet, *, nodes: Path | None = None, out: Path | None = None, resume: Path | None = None,
    listener: Listener | None = None, stop: StopRequest | None = None, log_file: Path | None = None,
    told: Callable[[Leader], None] = lambda leader: None,
) -> tuple[Result, Account]:  # fmt: skip
    """Start all processes of a fleet here, make its run, and take everything down."""
    fleet = alone(fleet)
    leader = fleet.cloud or fleet.monitor
    assert leader is not None
    require_free(fleet)
    with carried(fleet, nodes) as place, contextlib.ExitStack() as stack:
        leading = Leading(Site(fleet, leader, Credentials.load(place.nodes / leader.label)), told)
        others = Others(fleet, leading, place, log_file, stack)
        listeners = [others, *([] if listener is None else [listener])]
        try:
            result = lead(leading, fleet, out=out, resume=resume, listener=listeners, stop=stop)
        except LeavingError:
            raise FleetError(f"{others.problem}; mend that, then go on with --resume {others.folder}") from None
    assert leading.leader is not None
    account = account_of(leading.leader)
    files.write_json(result.out / ACCOUNT, account.to_json())
    return result, account


class Others(Listener):
    """These are the processes that a leader starts, once it listens and has a folder for what they remember."""

    def __init__(
        self, fleet: Fleet, leading: Leading, place: Carried, log_file: Path | None, stack: contextlib.ExitStack
    ) -> None:
        self._fleet, self._leading, self._place, self._log, self._stack = fleet, leading, place, log_file, stack
        self.folder: Path | None = None  # of the run
        self.problem: str | None = None  # for which the run cannot go on

    def ready(self, experiment: Experiment, out: Path) -> None:
        fleet, self.folder = self._fleet, out
        nodes = [node for node in fleet.nodes if node is not (fleet.cloud or fleet.monitor)]
        remember = [node for node in nodes if fleet.remembers and (fleet.cloud or node.role == "client")]
        outs = {node.label: out for node in remember}
        self._stack.enter_context(children(nodes, self._place, self._log, outs, self.ended))

    def ended(self, said: str, lost: set[Name]) -> set[Name]:
        """Go on without processes that have ended, which nobody starts again, or end where they are needed."""
        assert self._leading.leader is not None
        work = self._leading.leader.work
        idle = idle_nodes(self._fleet, work, lost)
        if idle is not None:
            log.warning("%s; the others go on", said)
            return idle
        edge, cloud = self._fleet.quorum.edge, self._fleet.quorum.cloud
        if work.algorithm.gossip is not None and any(name.role == "edge" for name in lost):
            self.problem = f"{said}, and without a cloud every edge is needed, whatever [quorum] says"
        else:
            self.problem = f"{said}, without which [quorum] edge = {edge:g}, cloud = {cloud:g} cannot be met"
        self._leading.leader.hub.stop(self.problem)
        return set()


def idle_nodes(fleet: Fleet, work: Work, lost: set[Name]) -> set[Name] | None:
    """Return the edges that have too few clients without those that are lost, and clients of edges that are gone; None
    where too few edges are left."""
    of_clients, of_edges = (Patience(quorum=share) for share in (fleet.quorum.edge, fleet.quorum.cloud))
    roster = [[client(int(i)) for i in own] for own in work.topology.roster]
    idle = {edge(n) for n, own in enumerate(roster) if len({*own} - lost) < of_clients.enough(len(own))}
    gone = idle | {name for name in lost if name.role == "edge"}
    few = len(roster) - len(gone) < of_edges.enough(len(roster))
    if few or (gone and work.algorithm.gossip is not None):
        return None
    return (idle | {name for n, own in enumerate(roster) if edge(n) in gone for name in own}) - lost


def require_free(fleet: Fleet) -> None:
    """Refuse an address where something listens already, before others wait for the node that would listen there."""
    for node in fleet.nodes:
        if node.binds is None:
            continue
        host, _, port = node.binds.rpartition(":")
        try:
            socket.create_server((host.strip("[]"), int(port))).close()
        except OSError as problem:
            raise FleetError(
                f"{node.names[0].words} cannot listen at {node.binds} ({problem.strerror}); choose another port: "
                "[fleet] port in the file, or the node's own address"
            ) from None


class Carried(NamedTuple):
    """This is the folder of the nodes' folders, and what is to be removed of it if this process is killed."""

    nodes: Path
    left: str = ""


@contextlib.contextmanager
def carried(fleet: Fleet, nodes: Path | None) -> Iterator[Carried]:
    """Give the folder of the nodes' folders: what `fedge fleet init` has made, or one for this time only."""
    made = nodes or folders.default_folder(fleet)
    if nodes is not None or all((made / node.label / folders.FILE).exists() for node in fleet.nodes):
        yield Carried(made)
        return
    with temporary() as own:
        place = own.folder / "nodes"
        folders.make_folders(fleet, place, days=7, lasting=False)
        yield Carried(place, str(own))


@contextlib.contextmanager
def children(
    nodes: list[Node], place: Carried, log_file: Path | None, outs: Mapping[str, Path], ended: Ended
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run each node in a process of its own until the block ends; some keep what they remember in a folder."""
    found: list[subprocess.Popen[bytes]] = []
    ending, leave = threading.Event(), LEAVE
    with tempfile.TemporaryDirectory(prefix="fedge-said-") as said:
        try:
            for node in nodes:
                found.append(_start(node, place, Path(said) / node.label, log_file, outs.get(node.label)))
            watch = threading.Thread(target=_watch, args=(nodes, found, Path(said), ending, ended), daemon=True)
            watch.start()
            yield found
        except BaseException:
            leave = 0.0
            raise
        finally:
            ending.set()
            _take_down(found, leave)


def _start(node: Node, place: Carried, said: Path, log_file: Path | None, kept: Path | None) -> subprocess.Popen[bytes]:
    out = None if kept is None else str(kept.absolute())
    words = [*folders.start_words(node, str(place.nodes / node.label), out)[1:], f"{WITH_PARENT}={place.left}"]
    if log_file is not None:
        words += ["--log", str(log_file)]
    with said.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "fedge", *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
        )


def _watch(
    nodes: list[Node], found: list[subprocess.Popen[bytes]], said: Path, ending: threading.Event, ended: Ended
) -> None:
    """Tell when children end before the others, and end those that are then of no use."""
    alive, lost = dict(zip(nodes, found, strict=True)), set[Name]()
    while alive and not ending.wait(LOOK):
        for node, child in [(node, child) for node, child in alive.items() if child.poll() is not None]:
            del alive[node]
            silent = f"killed by signal {-child.returncode}" if child.returncode < 0 else "it said nothing"
            last = ((said / node.label).read_text(errors="replace").strip().splitlines() or [silent])[-1]
            if not child.returncode or ending.is_set() or lost.issuperset(node.names):
                continue
            lost |= set(node.names)
            idle = ended(f"{node.label} has ended ({last.removeprefix('fedge: ')})", lost)
            lost |= idle
            for other, process in alive.items():
                if idle.issuperset(other.names):
                    process.terminate()


def _take_down(found: list[subprocess.Popen[bytes]], leave: float) -> None:
    """Let children end by themselves, then see to it that they do."""
    end = time.monotonic() + leave
    for child in found:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, end - time.monotonic()))
    for child in found:
        if child.stdin is not None:
            child.stdin.close()
        if child.poll() is None:
            child.kill()
        child.wait()
