"""A hub is the side of a node that is dialled: it knows who is connected, and collects what was asked of them.

Messages have a place (sender, round, edge round, step, attempt). What comes for a place that is awaited is kept, the
first time; anything later is acknowledged with a reason and dropped. Nothing is read of a message that must not come.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from fedge.errors import FleetError, brief
from fedge.net.frames import frames_of, received
from fedge.net.link import DROPPED, HELLO, METHOD, OPTIONS, REFUSED, SERVICE, STOP, WELCOME, Link
from fedge.net.names import Name
from fedge.net.status import METHOD as ASKED
from fedge.net.status import Progress, Status
from fedge.net.status import handler as status_handler
from fedge.net.tally import Tally
from fedge.net.wire import MOST_COUNT, NOTHING, Facts, Form, Head, Message

STREAMS = 1024  # at a time
LEAVE = 10.0  # seconds for the last messages to go out
AGAIN = "again"  # a fact of a refusal that may not last: dial again
log = logging.getLogger(__name__)


class Place(NamedTuple):
    """This says which answer of a node a message is."""

    sender: Name
    round: int
    edge_round: int = 0
    step: int = 0
    attempt: int = 0  # of several at one round, each of which has a number of its own

    @classmethod
    def of(cls, message: Message) -> Place:
        return cls(message.sender, message.round, message.edge_round, message.step, message.attempt)


def new_attempt() -> int:
    """Draw a number that no other attempt has, be it before this process was started again."""
    return secrets.randbelow(MOST_COUNT)


Kinds = Mapping[str, Form]  # which kinds of message may come to a place, and what each must bring
Vet = Callable[[tuple[Name, ...], Facts], Facts]
"""(names, what a node says of itself) → what it is told; a FleetError refuses it."""


class Hub:
    """This serves one node's children and neighbours; all its methods may be called from any thread."""

    def __init__(self, me: Name, vet: Vet, tally: Tally, own: Any = None, children: tuple[Name, ...] = ()) -> None:
        self.children = children  # who may be connected, for people to be told
        self.me, self.tally, self.progress = me, tally, Progress()
        self._vet, self._own = vet, own
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)  # the lock is asked for itself where nobody waits: it is faster
        self._links: dict[Name, Link] = {}
        self._seen: set[Name] = set()
        self._awaited: dict[Place, Kinds] = {}
        self._arrived: dict[Place, Message] = {}
        self._changes = 0
        self._stopping: str | None = None
        self.changed: Callable[[], None] = lambda: None  # called when somebody has come or gone
        self._server: Any = None

    # Serving

    def listen(self, address: str) -> int:
        """Serve at an address; return the port, which is chosen freely where it is 0."""
        import grpc

        self._server = grpc.server(ThreadPoolExecutor(STREAMS), options=[*OPTIONS, ("grpc.so_reuseport", 0)])
        methods = {
            METHOD: grpc.stream_stream_rpc_method_handler(self._serve),
            ASKED: status_handler(self.me, self._own, self.status),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        try:
            if self._own is None:
                port = self._server.add_insecure_port(address)
            else:
                from fedge.net.identity import server_credentials

                port = self._server.add_secure_port(address, server_credentials(self._own))
        except RuntimeError:
            port = 0
        if not port:
            raise FleetError(f"{self.me.words} cannot listen at {brief(address)}: the port is taken, or no address of "
                             "this machine; choose another")  # fmt: skip
        self._server.start()
        return int(port)

    def stop(self, reason: str, *, quietly: bool = False) -> None:
        """Tell everybody that this node leaves, and with it their work is over, unless quietly; and stop serving."""
        with self._lock:
            if self._stopping is not None:
                return
            self._stopping = reason
            links = dict(self._links)
            self._changed()
        for name, link in links.items():
            if not quietly:
                link.send(Message(STOP, self.me, name, facts={"reason": reason}))
            link.close()
        if self._server is not None:
            self._server.stop(LEAVE).wait()

    def _serve(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        try:
            link = self._admit(requests, context)
        except FleetError as problem:
            log.warning("%s refuses a node: %s", self.me.words, problem)
            yield from frames_of(Message(REFUSED, self.me, self.me, facts={"reason": str(problem)}))
            return
        except NotNowError as problem:
            yield from frames_of(Message(REFUSED, self.me, self.me, facts={"reason": str(problem), AGAIN: True}))
            return
        except Exception:  # whoever dialled has gone again
            return
        try:
            yield from link.outgoing()
        finally:
            self.detach(link)

    def _admit(self, requests: Iterator[bytes], context: Any) -> Link:
        """Hear who dials, and refuse whoever has no business here."""
        shown = None if self._own is None else self._own.admit(context)
        said = next(received(requests, _only_hello)).message
        assert said is not None
        names = (said.sender, *(Name.of(name) for name in said.facts.get("also", [])))
        if shown is not None and not set(names) <= set(shown):
            raise FleetError(f"a certificate of {', '.join(n.words for n in shown)} was shown by whoever calls itself "
                             f"{', '.join(n.words for n in names)}")  # fmt: skip
        told = self._vet(names, said.facts)
        link = Link(names, self.tally)
        link.send(Message(WELCOME, self.me, names[0], facts=told))
        self.attach(link, requests)
        return link

    def attach(self, link: Link, frames: Iterator[bytes]) -> None:
        """Take what comes over a link from now on, whoever dialled."""
        with self._lock:
            if self._stopping:
                raise NotNowError(f"{self.me.words} is leaving: {self._stopping}")
            if taken := [name for name in link.names if name in self._links]:
                log.warning("%s: a second process calls itself %s", self.me.words, taken[0].words)
                raise NotNowError(f"{taken[0].words} is connected already; two processes cannot be one node")
            self._links |= dict.fromkeys(link.names, link)
            self._seen |= set(link.names)
            self._changed()
        self.changed()
        threading.Thread(target=self._read, args=(link, frames), daemon=True, name=f"{self.me}<{link.names[0]}").start()

    def detach(self, link: Link) -> None:
        with self._lock:
            for name in link.names:
                if self._links.get(name) is link:
                    del self._links[name]
            self._changed()
        link.close()
        self.changed()

    def _read(self, link: Link, frames: Iterator[bytes]) -> None:
        try:
            for head, message, framing in received(frames, lambda head: self._expected(link, head)):
                if message is not None:
                    self._keep(message, framing)
                else:
                    reason = "it came twice, too late, or was not asked for"
                    bare = head.bare
                    link.send(Message(DROPPED, self.me, bare.sender, bare.round, bare.edge_round, bare.step,
                                      facts={"kind": bare.kind, "reason": reason}))  # fmt: skip
        except FleetError as problem:
            log.warning("%s goes on without %s: %s", self.me.words, link.names[0].words, problem)
            link.send(Message(REFUSED, self.me, link.names[0], facts={"reason": str(problem)}))
        except Exception as problem:  # gRPC's, when the other side has gone
            log.debug("%s lost %s: %s", self.me.words, link.names[0].words, problem)
        finally:
            self.detach(link)

    def _expected(self, link: Link, head: Head) -> Form | None:
        bare = head.bare
        if bare.sender not in link.names or bare.receiver != self.me:
            raise FleetError(f"{link.names[0].words} sent something ({brief(bare.kind)}) in the name of "
                             f"{bare.sender.words} to {bare.receiver.words}")  # fmt: skip
        if bare.kind in (DROPPED, STOP):
            return NOTHING
        with self._lock:
            kinds = self._awaited.get(Place.of(bare))
        if kinds is not None and bare.kind not in kinds:
            raise FleetError(f"{bare.sender.words} sent a {brief(bare.kind)} where {' or '.join(kinds)} is awaited")
        return None if kinds is None else kinds[bare.kind]

    def _keep(self, message: Message, framing: int) -> None:
        if message.kind in (DROPPED, STOP):
            return
        with self._lock:
            place = Place.of(message)
            if self._awaited.pop(place, None) is None:  # a second one came over another link meanwhile
                return
            if message.sender.role != self.me.role:  # between edges each counts what it sends
                self.tally.add(message, framing, message.sender)
            self._arrived[place] = message
            self._changed()  # last, for whoever waits cannot go on before this thread has nothing to do

    # Asking

    def expect(self, places: Mapping[Place, Kinds]) -> None:
        """Let messages come for these places, once each."""
        with self._lock:
            self._awaited |= places

    def forget(self, chosen: Callable[[Place], bool]) -> None:
        """Await some places no longer, and drop what came for them."""
        with self._lock:
            for table in (self._awaited, self._arrived):
                for place in [place for place in table if chosen(place)]:
                    del table[place]

    def passed(self, place: Place) -> bool:
        """Say whether something of a later round of its sender is there, behind which nothing comes for this place."""
        with self._lock:
            return any(p.sender == place.sender and p.round > place.round for p in self._arrived)

    def take(self, place: Place) -> Message | None:
        """Return what came for a place, once."""
        with self._lock:
            return self._arrived.pop(place, None)

    def link(self, name: Name) -> Link | None:
        with self._lock:
            return self._links.get(name)

    def was_here(self, name: Name) -> bool:
        """Say whether a node has been connected at some time."""
        with self._lock:
            return name in self._seen

    def connected(self) -> tuple[Name, ...]:
        with self._lock:
            return tuple(sorted(self._links))

    @property
    def leaving(self) -> bool:
        with self._lock:
            return self._stopping is not None

    def status(self) -> Status:
        """Say how this node is doing."""
        now = self.progress
        return Status(self.me, now.round, now.rounds, self.connected(), self.tally.counts(), now.seconds, now.missing,
                      dict(now.scores))  # fmt: skip

    @property
    def changes(self) -> int:
        with self._lock:
            return self._changes

    def wait(self, since: int, seconds: float) -> None:
        """Wait until something has come, or somebody has come or gone, since `changes` was that."""
        with self._lock:
            end = time.monotonic() + seconds
            while self._changes == since and (left := end - time.monotonic()) > 0:
                self._change.wait(left)

    def _changed(self) -> None:
        self._changes += 1
        self._change.notify_all()


class NotNowError(Exception):
    """A refusal that may not last."""


def _only_hello(head: Head) -> Form:
    if head.bare.kind != HELLO:
        raise FleetError("a node speaks before it has said who it is")
    return NOTHING
