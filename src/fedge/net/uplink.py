"""An uplink is the side of a node that dials: it stays connected to its parent, and dials again when that was lost."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fedge.errors import FleetError, brief
from fedge.net.frames import Expect, received
from fedge.net.hub import AGAIN
from fedge.net.link import DROPPED, HELLO, OPTIONS, PATH, REFUSED, STOP, WELCOME, Link
from fedge.net.names import Name
from fedge.net.tally import Tally
from fedge.net.wire import NOTHING, Facts, Form, Head, Message

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two tries
TWICE = 60.0  # seconds after which a name that is taken is another process's; a lost link is noticed in 40
log = logging.getLogger(__name__)


@dataclass
class Dialling:
    """This says whom to dial and how, and what to say there."""

    names: tuple[Name, ...]
    parent: Name
    address: str
    facts: Facts
    own: Any = None  # Credentials
    patience: float = 60.0  # seconds for a parent that does not answer
    given_up: Callable[[], bool] = lambda: False
    welcome: Facts = field(default_factory=dict)  # what the parent said last

    def connect(self, tally: Tally | None = None) -> tuple[Link, Any]:
        """Return a link and the frames that come over it, once the parent has said welcome."""
        began, pause, said = time.monotonic(), FIRST_PAUSE, ""
        while not self.given_up():
            try:
                return self._once(tally)
            except AgainError as problem:
                said = str(problem)
                if time.monotonic() - began > TWICE:
                    raise FleetError(said) from None
            except OSError as problem:
                said = f"{self.parent.words} does not answer at {self.address} ({brief(problem)})"
                if time.monotonic() - began > self.patience:
                    raise FleetError(f"{said}; is it running?") from None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise FleetError(f"{self.names[0].words} was told to stop")

    def _once(self, tally: Tally | None) -> tuple[Link, Any]:
        import grpc

        channel = self._channel()
        link = Link((self.parent,), tally)
        call = channel.stream_stream(PATH)(link.outgoing())
        also = [str(name) for name in self.names[1:]]
        link.send(Message(HELLO, self.names[0], self.parent, facts={**self.facts, "also": also}))
        try:
            first = next(received(call, _only_welcome)).message
        except StopIteration:
            channel.close()
            raise OSError("it hung up") from None
        except grpc.RpcError as problem:
            channel.close()
            raise OSError((str(problem.details()).splitlines() or ["lost"])[0]) from None
        assert first is not None
        if first.kind != WELCOME:
            channel.close()
            reason = str(first.facts.get("reason"))
            raise AgainError(reason) if first.facts.get(AGAIN) else FleetError(f"{self.parent.words} refuses: {reason}")
        self.welcome = first.facts
        link.channel = channel
        return link, call

    def _channel(self) -> Any:
        import grpc

        options = [*OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
        if self.own is None:
            return grpc.insecure_channel(self.address, options)
        from fedge.net.identity import dial

        return dial(self.address, self.own, self.parent, options)


class Uplink:
    """This is a node's connection to its parent: what comes is read in order.

    So many messages as `again` says, those sent last, are sent once more over a new connection; the first counts.
    """

    def __init__(self, dialling: Dialling, expect: Expect, again: int = 1) -> None:
        self._dialling, self._expect = dialling, expect
        self._last: deque[Message] = deque(maxlen=again)
        self._link: Link | None = None
        self._sending = threading.Lock()
        self._inbox = Inbox()

    @property
    def welcome(self) -> Facts:
        return self._dialling.welcome

    @property
    def connected(self) -> bool:
        return self._link is not None

    def messages(self) -> Iterator[Message]:
        """Yield what the parent asks for, over however many connections, until it says stop."""
        while True:
            if self._link is None:
                link, frames = self._dialling.connect()
                with self._sending:
                    for message in tuple(self._last):
                        link.send(message)
                    self._link = link
                threading.Thread(target=self._read, args=(frames,), daemon=True).start()
            found = self._inbox.get()
            if found is None:
                log.info("%s lost %s; dialling again", self._dialling.names[0].words, self._dialling.parent.words)
                self._close()
            elif isinstance(found, FleetError):
                self._close()
                raise found
            elif found.kind == STOP:
                self._close()
                return
            else:
                yield found

    def send(self, message: Message) -> None:
        with self._sending:
            self._last.append(message)
            if (link := self._link) is not None:
                link.send(message)

    def _read(self, frames: Any) -> None:
        ending: FleetError | None = None
        try:
            for each in received(frames, self._expected):
                if each.message is not None and each.message.kind == REFUSED:
                    ending = FleetError(f"{self._dialling.parent.words} refuses: {each.message.facts.get('reason')}")
                    break
                if each.message is not None and each.message.kind == DROPPED:
                    log.info("%s dropped a %s of round %d: %s", self._dialling.parent.words,
                             brief(each.message.facts.get("kind")), each.message.round,
                             brief(each.message.facts.get("reason"), 300))  # fmt: skip
                elif each.message is not None:
                    self._inbox.put(each.message)
        except FleetError as problem:
            ending = problem
        except Exception as problem:  # gRPC's, when the other side has gone
            log.debug("lost %s: %s", self._dialling.parent.words, problem)
        self._inbox.put(ending)

    def _expected(self, head: Head) -> Form | None:
        if head.bare.sender != self._dialling.parent:
            raise FleetError(f"{self._dialling.parent.words} speaks in the name of {head.bare.sender.words}")
        return NOTHING if head.bare.kind in (STOP, DROPPED, REFUSED) else self._expect(head)

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link.channel.close()
        self._link = None


class Inbox:
    """This holds what came until it is read, in order; of two messages of a kind to one node only the later is held.

    So who is slow does the newest work and not all that has come meanwhile.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._held: dict[object, Message | FleetError | None] = {}

    def put(self, found: Message | FleetError | None) -> None:
        """Add a message, or the end of a connection: a problem, or None where it was lost."""
        key = (found.kind, found.receiver) if isinstance(found, Message) else None
        with self._change:
            before = self._held.pop(key, None)
            self._held[key] = found
            self._change.notify()
        if isinstance(before, Message) and isinstance(found, Message) and before.round != found.round:
            log.warning("%s comes too late for round %d", found.receiver.words, before.round + 1)

    def get(self) -> Message | FleetError | None:
        """Return what came first, once it is there."""
        with self._change:
            self._change.wait_for(lambda: self._held)
            return self._held.pop(next(iter(self._held)))


class AgainError(Exception):
    """A refusal that may not last."""


def _only_welcome(head: Head) -> Form:
    if head.bare.kind not in (WELCOME, REFUSED):
        raise FleetError(f"whoever answers is no node of a fleet ({brief(head.bare.kind)})")
    return NOTHING
