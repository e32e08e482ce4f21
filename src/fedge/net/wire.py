"""A message on a wire is a typed header, then the bytes of its tensors.

    FEDGE1 | bytes of the header | its CRC-32 | header, JSON | tensors, little-endian, one after the other

The header names each tensor with its dtype and shape, and the length and CRC-32 of all their bytes. Whoever receives a
message says first which tensors may come (a `Form`, made from its own model); what differs is refused before any of
their bytes is read. Of a tensor with a mask only the numbers that the mask owns are sent; the mask, a bit for each
number, is part of the header.

The tensors' bytes are the payload, which is what `cost/ledger.py` predicts to the byte; all else is framing.
"""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fedge.errors import FleetError, brief
from fedge.net.names import Name

Tensors = Mapping[str, NDArray[Any]]
Facts = Mapping[str, Any]

PREFIX = struct.Struct("<6sII")
MAGIC = b"FEDGE1"
MOST_HEADER = 2**22  # bytes
MOST_COUNT = 2**31 - 1  # of rounds and steps
DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
}


class Slot(NamedTuple):
    """This says of one tensor what may come; where it may be masked, fewer of its numbers may."""

    dtype: str
    shape: tuple[int, ...]
    maskable: bool = False


Form = Mapping[str, Slot]
NOTHING: Form = {}


@dataclass(frozen=True)
class Message:
    """This is one message between two nodes; what its numbers mean depends on its kind."""

    kind: str
    sender: Name
    receiver: Name
    round: int = 0
    edge_round: int = 0
    step: int = 0
    attempt: int = 0
    tensors: Tensors = field(default_factory=dict)
    masks: Tensors = field(default_factory=dict)  # of some tensors: True where a number is sent, and 0 elsewhere
    facts: Facts = field(default_factory=dict)  # plain values of JSON

    @property
    def payload(self) -> int:
        """Count the bytes of its tensors on a wire."""
        return sum(_sent(array, self.masks.get(name)).nbytes for name, array in self.tensors.items())


@dataclass(frozen=True)
class Entry:
    """This is a tensor as a header names it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    mask: NDArray[np.bool_] | None

    @property
    def count(self) -> int:
        return math.prod(self.shape) if self.mask is None else int(self.mask.sum())

    @property
    def size(self) -> int:
        return self.count * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Head:
    """This is a header: all of a message but its tensors' numbers."""

    bare: Message
    entries: tuple[Entry, ...]
    size: int  # bytes of the tensors
    checksum: int
    framing: int  # bytes of the header, with its prefix


def pack(message: Message) -> tuple[bytes, list[memoryview]]:
    """Return a message's header and the bytes of its tensors, which are not copied where they lie in order."""
    parts, table, checksum, size = list[memoryview](), list[list[Any]](), 0, 0
    for name, array in message.tensors.items():
        mask = message.masks.get(name)
        sent = _sent(array, mask)
        if sent.dtype.name not in DTYPES:
            raise FleetError(f"a tensor of {sent.dtype.name} cannot be sent; allowed: {', '.join(DTYPES)}")
        bits = (
            None
            if mask is None
            else base64.b64encode(np.packbits(np.asarray(mask, bool).reshape(-1)).tobytes()).decode()
        )
        table.append([name, sent.dtype.name, list(array.shape), bits])
        part = sent.reshape(-1).view(np.uint8).data if sent.size else memoryview(b"")
        checksum, size = zlib.crc32(part, checksum), size + len(part)
        parts.append(part)
    told = {
        "kind": message.kind,
        "from": str(message.sender),
        "to": str(message.receiver),
        "at": [message.round, message.edge_round, message.step, message.attempt],
        "facts": dict(message.facts),
        "tensors": table,
        "bytes": size,
        "crc": checksum,
    }
    try:
        header = json.dumps(told, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise FleetError(f"a {message.kind} has a fact that is no finite number, which cannot be sent") from None
    if len(header) > MOST_HEADER:
        raise FleetError(f"the header of a message has {len(header):,} bytes; at most {MOST_HEADER:,} can be sent")
    return PREFIX.pack(MAGIC, len(header), zlib.crc32(header)) + header, parts


def is_number(fact: Any) -> TypeGuard[float]:
    """Say whether a fact that came can be counted with: a number, and so small that sums of such are finite too."""
    return type(fact) in (int, float) and abs(fact) < 1e300


def _sent(array: NDArray[Any], mask: NDArray[Any] | None) -> NDArray[Any]:
    """Return the numbers of a tensor that are sent, in order and little-endian."""
    array = np.asarray(array) if mask is None else np.asarray(array)[np.asarray(mask, bool)]
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def read_head(data: bytes | memoryview) -> Head:
    """Read a header from the first bytes of a message, and refuse whatever is none."""
    if len(data) < PREFIX.size:
        raise FleetError(f"a message of {len(data)} bytes is cut short; it was not sent by a node of fedge")
    magic, length, checksum = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise FleetError("a message does not begin as one of this version of fedge; run the same version on both sides")
    if length > MOST_HEADER:
        raise FleetError(f"a message announces a header of {length:,} bytes; at most {MOST_HEADER:,} are read")
    text = bytes(data[PREFIX.size : PREFIX.size + length])
    if len(text) < length:
        raise FleetError("the header of a message is cut short")
    if zlib.crc32(text) != checksum:
        raise FleetError("the header of a message is damaged: its checksum does not hold")
    try:
        return _parsed(json.loads(text, parse_constant=_no_number), PREFIX.size + length)
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as problem:
        raise FleetError(
            f"the header of a message cannot be read ({type(problem).__name__}: {brief(problem)})"
        ) from None


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _parsed(given: Any, framing: int) -> Head:
    kind, facts, at = given["kind"], given["facts"], given["at"]
    if not (isinstance(kind, str) and isinstance(facts, dict) and isinstance(at, list) and len(at) == 4):
        raise ValueError("kind, facts or place are not what they should be")
    index, edge_round, step, attempt = (_counted(n) for n in at)
    entries = tuple(_entry(*row) for row in given["tensors"])
    if len({e.name for e in entries}) != len(entries):
        raise ValueError("a tensor is named twice")
    size, checksum = given["bytes"], given["crc"]
    if type(size) is not int or type(checksum) is not int or size != sum(e.size for e in entries):
        raise ValueError("the bytes announced are not those of the tensors")
    bare = Message(
        kind, Name.of(given["from"]), Name.of(given["to"]), index, edge_round, step, attempt, facts=facts,
        masks={e.name: e.mask for e in entries if e.mask is not None},
    )  # fmt: skip
    return Head(bare, entries, size, checksum, framing)


def _counted(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= MOST_COUNT:
        raise ValueError("a round or a step is no count")
    return number


def _entry(name: Any, dtype: Any, shape: Any, bits: Any) -> Entry:
    if not isinstance(name, str) or dtype not in DTYPES or not isinstance(shape, list) or len(shape) > 32:
        raise ValueError("a tensor has no name, a dtype that is not sent, or no shape")
    sides = tuple(_counted(side) for side in shape)
    if math.prod(sides) > 2**48:
        raise ValueError("a tensor is larger than any memory")
    if bits is None:
        return Entry(name, dtype, sides, None)
    packed = np.frombuffer(base64.b64decode(bits, validate=True), np.uint8)
    count = math.prod(sides)
    if len(packed) != -(-count // 8):
        raise ValueError("a mask does not fit its tensor")
    flags = np.unpackbits(packed)
    if flags[count:].any():
        raise ValueError("a mask has more bits than its tensor has numbers")
    return Entry(name, dtype, sides, flags[:count].astype(bool).reshape(sides))


def require(head: Head, form: Form) -> None:
    """Refuse tensors that are not what a message of this kind must bring, before their bytes are read."""
    what = f"{head.bare.kind} of {head.bare.sender.words}"
    found = {entry.name: entry for entry in head.entries}
    if found.keys() != form.keys():
        missing, beyond = sorted(form.keys() - found.keys()), sorted(found.keys() - form.keys())
        said = f"lacks tensor '{brief(missing[0])}'" if missing else f"brings an unknown tensor '{brief(beyond[0])}'"
        raise FleetError(f"{what} {said}; both sides must run the same model")
    for name, slot in form.items():
        entry = found[name]
        if (entry.dtype, entry.shape) != (slot.dtype, slot.shape):
            raise FleetError(
                f"{what} brings '{brief(name)}' as {entry.dtype}{list(entry.shape)} and not as "
                f"{slot.dtype}{list(slot.shape)}; both sides must run the same model"
            )
        if entry.mask is not None and not slot.maskable:
            raise FleetError(f"{what} leaves out numbers of '{brief(name)}', which must come whole")


def read_body(head: Head, body: bytes | bytearray | memoryview) -> Message:
    """Return the whole message, once the bytes of its tensors are there."""
    what = f"{head.bare.kind} of {head.bare.sender.words}"
    if len(body) != head.size:
        raise FleetError(f"{what} has {len(body):,} bytes of tensors and announced {head.size:,}")
    if zlib.crc32(body) != head.checksum:
        raise FleetError(f"{what} is damaged: its checksum does not hold")
    tensors, first = dict[str, NDArray[Any]](), 0
    for entry in head.entries:
        array = np.frombuffer(body, DTYPES[entry.dtype], entry.count, first)
        first += entry.size
        if entry.mask is None:
            tensors[entry.name] = array.reshape(entry.shape)
        else:
            whole = np.zeros(entry.shape, array.dtype)
            whole[entry.mask] = array
            tensors[entry.name] = whole
    bare = head.bare
    return Message(
        bare.kind, bare.sender, bare.receiver, bare.round, bare.edge_round, bare.step, bare.attempt,
        tensors, bare.masks, bare.facts,
    )  # fmt: skip
