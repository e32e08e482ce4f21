"""A link is one long-lived stream of messages between two processes, in both directions."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

from fedge.net.frames import MOST_FRAME, OF_GRPC, frames_of
from fedge.net.names import Name
from fedge.net.tally import Tally
from fedge.net.wire import Message

SERVICE, METHOD = "fedge.Fleet", "Link"
PATH = f"/{SERVICE}/{METHOD}"
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MOST_FRAME),
    ("grpc.max_send_message_length", MOST_FRAME),
    ("grpc.keepalive_time_ms", 20_000),  # a peer whose machine is gone is noticed, though nothing was sent
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
]

# What nodes say to each other besides their work.
HELLO, WELCOME, REFUSED, DROPPED, STOP = "hello", "welcome", "refused", "dropped", "stop"


class Link:
    """This is one end of a stream; whoever sends is not held up, and what waits is bounded by what is asked for."""

    def __init__(self, names: tuple[Name, ...], tally: Tally | None = None, billed_to: Name | None = None) -> None:
        self.names, self.open, self.gone = names, True, threading.Event()
        self.channel: Any = None  # of whoever dialled: it lives as long as the link
        self._tally, self._billed_to = tally, billed_to
        self._frames: queue.SimpleQueue[list[bytes] | None] = queue.SimpleQueue()

    def send(self, message: Message) -> None:
        """Put a message on its way; on a link that is closed it is lost, as it may be on any."""
        if not self.open:
            return
        frames = frames_of(message)
        if self._tally is not None:
            framing = sum(map(len, frames)) - message.payload + OF_GRPC * len(frames)
            self._tally.add(message, framing, self._billed_to or message.receiver)
        self._frames.put(frames)  # as one: several threads send, and a receiver reads one message after the other

    def close(self) -> None:
        """Send what was put on its way, and then nothing more."""
        self.open = False
        self.gone.set()
        self._frames.put(None)

    def outgoing(self) -> Iterator[bytes]:
        """Return what is sent, frame by frame; gRPC reads this when the other side has room."""
        while (frames := self._frames.get()) is not None:
            yield from frames
