"""A message travels in frames: the first has its header and what fits of its tensors, the others have the rest.

A receiver looks at the header before it makes room for the tensors or reads another frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fedge.errors import FleetError
from fedge.net.wire import MOST_HEADER, PREFIX, Form, Head, Message, pack, read_body, read_head, require

CHUNK = 2**21  # bytes of tensors in a frame; most messages are one frame
MOST_FRAME = PREFIX.size + MOST_HEADER + CHUNK
OF_GRPC = 5  # bytes that gRPC puts before each frame

Expect = Callable[[Head], Form | None]
"""header → what its tensors must be; None: the message is passed over. What must not come at all is a FleetError."""


class Received(NamedTuple):
    """This is a message as it came, or only its header where it was passed over."""

    head: Head
    message: Message | None
    framing: int  # bytes on the wire that are no tensor's


def frames_of(message: Message) -> list[bytes]:
    """Cut a message into frames."""
    head, parts = pack(message)
    frames, pieces, filled = list[bytes](), list[bytes | memoryview]([head]), 0
    for part in parts:
        while len(part):
            taken = part[: CHUNK - filled]
            pieces.append(taken)
            filled, part = filled + len(taken), part[len(taken) :]
            if filled == CHUNK:
                frames.append(b"".join(pieces))
                pieces, filled = [], 0
    return [*frames, b"".join(pieces)] if pieces else frames


def received(frames: Iterator[bytes], expect: Expect) -> Iterator[Received]:
    """Read messages from frames; the first that must not come ends it with its FleetError."""
    for frame in frames:
        head, count = read_head(frame), 1
        form = expect(head)
        if form is not None:
            require(head, form)
        first = memoryview(frame)[head.framing :]
        body: memoryview | bytearray = first
        if len(first) < head.size:
            body, count = _whole(head, first, frames, keep=form is not None)
        message = None if form is None else read_body(head, body)
        yield Received(head, message, head.framing + count * OF_GRPC)


def _whole(head: Head, first: memoryview, frames: Iterator[bytes], *, keep: bool) -> tuple[bytearray, int]:
    """Read the rest of a message's tensors; return all of them, if they are to be kept, and how many frames it were."""
    body, filled, count = bytearray(head.size if keep else 0), 0, 1
    part: memoryview | bytes = first
    while True:
        if filled + len(part) > head.size or not (part or count == 1):
            raise FleetError(f"{head.bare.words} is not as long as it was announced")
        if keep:
            body[filled : filled + len(part)] = part
        filled += len(part)
        if filled == head.size:
            return body, count
        part, count = next(frames, b""), count + 1
