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

from fedge.errors import FleetError
from fedge.experiment.build import Experiment
from fedge.fleet import folders
from fedge.fleet.account import Account, account_of
from fedge.fleet.leader import Leader
from fedge.fleet.nodes import Leading, Site, alone, lead
from fedge.net.fleet import Fleet, Node
from fedge.net.identity import Credentials
from fedge.runner import files
from fedge.runner.listener import Listener
from fedge.runner.result import Result
from fedge.runner.signals import StopRequest

ACCOUNT = "fleet.json"  # in the run folder
WITH_PARENT = "--with-parent"
LEAVE = 5.0  # seconds for children to end by themselves, once they were told; they hold nothing that would be lost
LOOK = 0.2
log = logging.getLogger(__name__)


def end_with_parent() -> None:
    """End this process as soon as its parent has ended: standard input is then at its end."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
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
        own = Credentials.load(place / leader.label)

        class Begin(Listener):
            """This starts the others once this process listens and has a folder, where they keep what they remember."""

            def ready(self, experiment: Experiment, out: Path) -> None:
                others = [node for node in fleet.nodes if node is not leader]
                remember = [node for node in others if fleet.remembers and (fleet.cloud or node.role == "client")]
                stack.enter_context(children(others, place, log_file, {node.label: out for node in remember}))

        leading = Leading(Site(fleet, leader, own), told)
        listeners = [Begin(), *([] if listener is None else [listener])]
        result = lead(leading, fleet, out=out, resume=resume, listener=listeners, stop=stop)
    assert leading.leader is not None
    account = account_of(leading.leader)
    files.write_json(result.out / ACCOUNT, account.to_json())
    return result, account


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


@contextlib.contextmanager
def carried(fleet: Fleet, nodes: Path | None) -> Iterator[Path]:
    """Give the folder of the nodes' folders: what `fedge fleet init` has made, or one for this time only."""
    made = nodes or folders.default_folder(fleet)
    if nodes is not None or all((made / node.label / folders.FILE).exists() for node in fleet.nodes):
        yield made
        return
    with tempfile.TemporaryDirectory(prefix="fedge-fleet-") as temporary:
        place = Path(temporary) / "nodes"
        folders.make_folders(fleet, place, days=7)
        yield place


@contextlib.contextmanager
def children(
    nodes: list[Node], place: Path, log_file: Path | None, outs: Mapping[str, Path]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run each node in a process of its own until the block ends; some keep what they remember in a folder."""
    found: list[subprocess.Popen[bytes]] = []
    ending = threading.Event()
    with tempfile.TemporaryDirectory(prefix="fedge-said-") as said:
        try:
            for node in nodes:
                found.append(_start(node, place, Path(said) / node.label, log_file, outs.get(node.label)))
            watch = threading.Thread(target=_watch, args=(nodes, found, Path(said), ending), daemon=True)
            watch.start()
            yield found
        finally:
            ending.set()
            _take_down(found)


def _start(node: Node, place: Path, said: Path, log_file: Path | None, kept: Path | None) -> subprocess.Popen[bytes]:
    out = None if kept is None else str(kept.absolute())
    words = [*folders.start_words(node, str(place / node.label), out)[1:], WITH_PARENT]
    if log_file is not None:
        words += ["--log", str(log_file)]
    with said.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "fedge", *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
        )


def _watch(nodes: list[Node], found: list[subprocess.Popen[bytes]], said: Path, ending: threading.Event) -> None:
    """Say so when a child ends before the others."""
    alive = dict(zip(nodes, found, strict=True))
    while alive and not ending.wait(LOOK):
        for node, child in [(node, child) for node, child in alive.items() if child.poll() is not None]:
            del alive[node]
            last = ((said / node.label).read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            if child.returncode and not ending.is_set():
                log.warning("%s has ended (%s)", node.label, last.removeprefix("fedge: "))


def _take_down(found: list[subprocess.Popen[bytes]]) -> None:
    """Let children end by themselves, then see to it that they do."""
    end = time.monotonic() + LEAVE
    for child in found:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, end - time.monotonic()))
    for child in found:
        if child.stdin is not None:
            child.stdin.close()
        if child.poll() is None:
            child.kill()
        child.wait()
